// Command limitctl shows what package limit does, and what a deployment of it
// needs: "limitctl demo" serves a page on which requests can be sent to limited
// routes of Gin, Echo and net/http, "limitctl doctor" checks a Redis and an
// application, and says what to change.
//
// It is not called limit because that is a builtin of zsh and csh.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)

	err := newCommand().ExecuteContext(ctx)
	code, print := exitCode(err)
	if print {
		fmt.Fprintln(os.Stderr, "limitctl:", err)
	}
	os.Exit(code)
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "limitctl",
		Short:         "Rate limiting where every rule passes, or nothing is spent",
		Version:       version(),
		SilenceUsage:  true, // an error of the program is not one of its use
		SilenceErrors: true, // main prints it
	}
	root.AddCommand(newDemoCommand(), newDoctorCommand())
	return root
}

// version returns the version of this module that go install was asked for. A
// build from a checkout reports its commit, or "(devel)".
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version + ", built with " + info.GoVersion
}
