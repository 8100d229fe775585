// SPDX-License-Identifier: Apache-2.0

// Package natsconn has what all connections to NATS need: credentials from a file, and addresses without secrets. It
// has no part in the data path.
package natsconn

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// Credentials returns the option for a file of credentials: that of an account's JWT, or a seed of an NKey; nil if
// file is "". Errors are faults of kind Config.
func Credentials(file string) (nats.Option, error) {
	if file == "" {
		return nil, nil
	}
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
