package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/policyfile"
)

// A caller is what arguments say of a request and of the limiter that decides it.
type caller struct {
	address, user, plan, class string
	headers, trusted, classes  []string
}

func classesFlag(cmd *cobra.Command, classes *[]string) {
	cmd.Flags().StringSliceVar(classes, "classes", nil, "limit.Options.Classes of the program, from the highest; default critical,default,background")
}

// request returns the request that a line such as "POST /login" describes.
func (c *caller) request(line string) (*http.Request, error) {
	method, target, ok := strings.Cut(line, " ")
	if !ok {
		method, target = http.MethodGet, line
	}
	u, err := url.Parse(target)
	if err != nil || !strings.HasPrefix(u.Path, "/") {
		return nil, fmt.Errorf("request %q: write a method and a path, such as \"POST /login\"", line)
	}
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		return nil, fmt.Errorf("request %q: %w", line, err)
	}
	ip, err := netip.ParseAddr(c.address)
	if err != nil {
		return nil, fmt.Errorf("--ip %q: write an address, such as 203.0.113.9", c.address)
	}
	r.RemoteAddr = net.JoinHostPort(ip.String(), "1")
	for _, header := range c.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return nil, fmt.Errorf("--header %q: write \"Name: value\"", header)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return r, nil
}

// options returns those of the limiter.
func (c *caller) options() (o *limit.Options, err error) {
	o = &limit.Options{User: always(c.user), Plan: always(c.plan), Class: always(c.class), Classes: c.classes, Log: slog.New(slog.DiscardHandler)}
	for _, text := range c.trusted {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--trusted %q: write a prefix, such as 10.0.0.0/8", text)
		}
		o.Proxies.Trusted = append(o.Proxies.Trusted, prefix)
	}
	defer func() {
		if problem := recover(); problem != nil { // of New
			err = fmt.Errorf("--classes %q, --trusted %q: %v", c.classes, c.trusted, problem)
		}
	}()
	limit.New(nil, o)
	return o, nil
}

// check returns what a file is, or what is wrong with it on a limiter with these options.
func (c *caller) check(path string) (text string, err error) {
	options, err := c.options()
	if err != nil {
		return "", err
	}
	policies, err := policyfile.Open(path, &policyfile.Options{User: options.User, Log: options.Log})
	if err != nil {
		return "", err
	}
	f, err := policyfile.Read(path)
	if err != nil {
		return "", err
	}
	ended, end := context.WithCancel(context.Background())
	end() // the file is not followed
	if err := policies.Follow(ended, limit.New(nil, options)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: valid, sha256 %s, policies %d", path, policies.Status().Sum, len(f.Sets())), nil
}

func always(text string) func(*http.Request) string {
	return func(*http.Request) string { return text }
}
