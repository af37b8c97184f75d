// Command limitctl shows what package limit does: "limitctl demo" serves a page
// on which requests can be sent to limited routes of Gin, Echo and net/http.
//
// It is not called limit because that is a builtin of zsh and csh.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)

	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "limitctl:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "limitctl",
		Short:         "Rate limiting where every rule passes, or nothing is spent",
		SilenceUsage:  true, // an error of the program is not one of its use
		SilenceErrors: true, // main prints it
	}
	root.AddCommand(newDemoCommand())
	return root
}
