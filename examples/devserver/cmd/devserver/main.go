// Command devserver runs a Temporal development server until it is interrupted.
//
//	go run ./examples/devserver/cmd/devserver -namespace callers -namespace tools -db dev.db
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nexusmcp/nexusmcp/examples/devserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes, as the flag package and shells have them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// run starts a server, says how to reach it, and stops it when ctx ends.
func run(ctx context.Context, arguments []string, stdout, stderr io.Writer) int {
	options, err := parse(arguments, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return exitUsage // the flag package has said why
	}
	server, err := devserver.Start(ctx, options)
	if errors.Is(err, context.Canceled) {
		return exitOK // interrupted while starting
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	describe(stdout, server, options)

	<-ctx.Done()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return exitOK
}

func parse(arguments []string, stderr io.Writer) (devserver.Options, error) {
	var options devserver.Options
	flags := flag.NewFlagSet("devserver", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("namespace", "a `name` of a namespace to create; repeat for more (default \"default\")", func(name string) error {
		options.Namespaces = append(options.Namespaces, name)
		return nil
	})
	flags.IntVar(&options.Port, "port", 7233, "`port` for gRPC clients; -1 for a free one")
	flags.IntVar(&options.UIPort, "ui-port", 8233, "`port` of the Web UI; -1 for a free one, 0 for no UI")
	flags.StringVar(&options.DatabaseFile, "db", "", "SQLite `file` that keeps the state, created when missing (default in memory)")
	if err := flags.Parse(arguments); err != nil {
		return options, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unexpected argument %q: devserver takes flags only", flags.Arg(0))
		fmt.Fprintln(stderr, err)
		return options, err
	}
	return options, nil
}

func describe(w io.Writer, server *devserver.Server, options devserver.Options) {
	namespaces := options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{"default"}
	}
	database := options.DatabaseFile
	if database == "" {
		database = "in memory, gone when the server stops"
	}
	ui := server.UIURL()
	if ui == "" {
		ui = "off"
	}
	fmt.Fprintf(w, `Address     %s
Web UI      %s
Namespaces  %s
Database    %s
Try         temporal workflow list --address %s --namespace %s
Ctrl-C stops the server.
`, server.HostPort(), ui, strings.Join(namespaces, ", "), database, server.HostPort(), namespaces[0])
}
