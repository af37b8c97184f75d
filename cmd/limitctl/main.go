// Command limitctl shows package limit at work, checks deployments of it, and lets operators
// look at quotas and policies and change them. "limitctl help" lists its commands.
//
// It is not called limit because zsh and csh have a builtin of that name.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)

	code, text := exitCode(newCommand().ExecuteContextC(ctx))
	if text != "" {
		fmt.Fprintln(os.Stderr, "limitctl:", text)
	}
	os.Exit(code)
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "limitctl",
		Short:         "Rate limiting in which every rule admits a request, or none is charged",
		Version:       version(),
		SilenceUsage:  true, // errors at run time are not errors of usage
		SilenceErrors: true, // main prints it
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newDemoCommand(), newDoctorCommand(), newSimulateCommand(),
		newCheckCommand(), newExplainCommand(), newSchemaCommand(), newPushCommand(), newHistoryCommand(),
		newTopCommand(), newInspectCommand(), newResetCommand(), newBanCommand(), newOverrideCommand(), newWatchCommand())
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.Flag("key") != nil {
		return usageError{fmt.Errorf("unexpected argument %q: name a key by --key, and its rule by --policy and --rule", args[0])}
	}
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
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
