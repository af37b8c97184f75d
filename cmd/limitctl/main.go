// Command limitctl shows package limit at work, checks deployments of it, and lets operators
// look at quotas and policies and change them. "limitctl help" lists its commands.
//
// It is not called limit because zsh and csh have a builtin of that name.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/ops/policyfile"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)

	cmd, err := newCommand().ExecuteContextC(ctx)
	code, text := exitCode(cmd, err)
	if text != "" {
		if !errors.As(err, new(*policyfile.Error)) { // a mistake begins with its place, as editors know it
			text = "limitctl: " + text
		}
		fmt.Fprintln(os.Stderr, text)
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

// A findings error is the exit code of findings that have been printed.
type findings int

func (findings) Error() string { return "there are findings" }

// A usageError says that a command was called with wrong arguments, and did nothing.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode returns the code of the error of a command, and the text to print. Parts of an
// error may be from elsewhere, such as the name of a file: nothing in the text moves a cursor.
func exitCode(cmd *cobra.Command, err error) (code int, text string) {
	var found findings
	var wrong usageError
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &found):
		return int(found), ""
	case errors.As(err, &wrong), strings.HasPrefix(err.Error(), "unknown command "): // of cobra, which has no type for it
		return 3, words.Lines(err.Error())
	}
	return 1, words.Lines(explained(cmd, err).Error())
}

// explained adds to an error of Redis what to write instead.
func explained(cmd *cobra.Command, err error) error {
	value := func(flag string) string {
		if f := cmd.Flag(flag); f != nil {
			return f.Value.String()
		}
		return ""
	}
	user := ""
	if at, err := url.Parse(value("redis")); err == nil {
		user = at.User.Username()
		if value("sentinel") != "" {
			user = at.Query().Get("username")
		}
	}
	grant := fmt.Sprintf("ACL SETUSER %s %s", shown(cmp.Or(user, "default")), rightsOf(cmd.Name(), cmp.Or(value("prefix"), "limit"), value("control-prefix")))
	if strings.Contains(err.Error(), "'select'") { // of a database other than 0
		grant += " +select"
	}
	return redisclient.Explain(err, grant, value("sentinel") != "")
}

// rightsOf returns the rights that a command needs, as ACL SETUSER takes them.
func rightsOf(command, prefix, control string) string {
	const look = " +evalsha +eval +scan +info +time +mget +exists +get +getrange +pttl +hget +hscan +zrangebyscore"
	quotas, documents := "~"+prefix+":*", "~"+cmp.Or(control, prefix)+":control:*"
	if control != "" {
		quotas += " " + documents
	}
	switch command {
	case "top", "inspect":
		return quotas + look
	case "reset":
		return quotas + look + " +del +set"
	case "watch":
		return documents + " &" + prefix + ":control:* +set +subscribe +unsubscribe"
	}
	return documents + " +" + strings.ToLower(strings.Join(redisfacts.NeededByControl, " +"))
}
