// SPDX-License-Identifier: Apache-2.0

// Package natsconn has what all connections to NATS need: options with credentials from a file, requests to nodes
// that have no leader yet, and addresses without secrets. It has no part in the data path.
package natsconn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// firstTimeout is how long Ask waits at first.
const firstTimeout = 500 * time.Millisecond

// Options returns the options of a client with a name for the servers' operator. It connects again as often as
// needed. creds is a file of credentials, that of an account's JWT or a seed of an NKey, and ca one with the
// certificate of the authority that signs for the servers: "" for none. Errors are faults of kind Config.
func Options(name, creds, ca string) ([]nats.Option, error) {
	list := []nats.Option{nats.Name(name), nats.MaxReconnects(-1)}
	if creds != "" {
		auth, err := readCredentials(creds)
		if err != nil {
			return nil, err
		}
		list = append(list, auth)
	}
	if ca != "" {
		list = append(list, nats.RootCAs(ca))
	}
	return list, nil
}

// errNoLeader is the code of the error of nodes that have no leader now.
const errNoLeader = 10008

// IsUnanswered reports whether a request was not answered by a node that knows.
func IsUnanswered(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &api) && api.ErrorCode == errNoLeader
}

// Ask calls f until it is answered or ctx ends. Nodes that have no leader yet, of all or of one stream, leave a request
// without an answer, or say so: it is repeated, with more time each time.
func Ask(ctx context.Context, f func(context.Context) error) error {
	for wait := firstTimeout; ; wait *= 2 {
		asking, cancel := context.WithTimeout(ctx, wait)
		err := f(asking)
		canRepeat := IsUnanswered(err)
		if canRepeat {
			<-asking.Done()
		}
		cancel()
		if !canRepeat || ctx.Err() != nil {
			return err
		}
	}
}

// readCredentials returns the option for a file of credentials.
func readCredentials(file string) (nats.Option, error) {
	data, err := userfile.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Config, err,
			"--creds names a file with the credentials that the operator of the NATS servers gave you")
	}
	if strings.Contains(string(data), "-----BEGIN NATS USER JWT-----") {
		return nats.UserCredentials(file), nil
	}
	opt, err := nats.NkeyOptionFromSeed(file)
	return opt, fault.New(fault.Config, prefixed(file, err),
		"the file contains a user's JWT and seed, as `nsc generate creds` writes it, or a seed alone, SU…")
}

// prefixed says that a file has no credentials.
func prefixed(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s has no credentials for NATS: %w", file, err)
}

// HideSecrets returns a list of addresses, separated by commas, without their users, passwords and tokens.
func HideSecrets(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		list[i] = strings.TrimSpace(text)
		if u, err := url.Parse(list[i]); err == nil && u.Host != "" {
			u.User = nil
			list[i] = u.String()
		} else if _, host, ok := strings.Cut(list[i], "@"); ok {
			list[i] = host
		}
	}
	return strings.Join(list, ",")
}
