// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/userfile"
	"mpbond/internal/cli"
	"mpbond/onload/fetch"
)

// secretOptions are headers, cookies and passwords, with the flag names of curl.
type secretOptions struct {
	headers, cookies []string
	netrc            bool
	netrcFile        string
}

func (o *secretOptions) addSecretFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&o.headers, "header", "H", nil,
		"send the header `NAME:VALUE` to the hosts of the URLs; repeatable")
	cmd.Flags().StringArrayVarP(&o.cookies, "cookie", "b", nil,
		"send cookies: `NAME=VALUE|FILE`, where FILE has Netscape's cookie format; repeatable")
	cmd.Flags().BoolVarP(&o.netrc, "netrc", "n", false, "read user names and passwords from ~/.netrc")
	cmd.Flags().StringVar(&o.netrcFile, "netrc-file", "", "read user names and passwords from this `FILE`")
}

// reservedHeaders are the headers that a download sets by itself.
var reservedHeaders = []string{"Range", "If-Range", "Accept-Encoding", "Connection", "Content-Length",
	"Transfer-Encoding"}

// loadSecrets reads the secrets and returns them for some URLs.
func (o *secretOptions) loadSecrets(urls ...string) (*fetch.Secrets, error) {
	s := &fetch.Secrets{}
	var err error
	if s.Header, err = fetch.ParseHeaders(o.headers); err != nil {
		return nil, cli.UsageError("%v", err)
	}
	for _, name := range reservedHeaders {
		if s.Header.Get(name) != "" {
			return nil, cli.UsageError("--header %s is not allowed: the download sets it", name)
		}
	}
	for _, c := range o.cookies {
		if strings.Contains(c, "=") {
			s.Cookie = strings.TrimPrefix(s.Cookie+"; "+c, "; ")
			continue
		}
		err := readSecretFile(c, func(in io.Reader) error {
			list, err := fetch.ReadCookies(in)
			s.Cookies = append(s.Cookies, list...)
			return err
		})
		if err != nil {
			return nil, fault.New(fault.Usage, fmt.Errorf("--cookie: %w", err),
				"give NAME=VALUE, or a file in Netscape's cookie format")
		}
	}
	if strings.ContainsAny(s.Cookie, "\r\n\x00") {
		return nil, cli.UsageError("--cookie has an invalid character: write NAME=VALUE")
	}
	if o.netrc || o.netrcFile != "" {
		name := o.netrcFile
		if name == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, fault.New(fault.Usage, err, "name the file with --netrc-file")
			}
			name = cmp.Or(os.Getenv("NETRC"), filepath.Join(home, ".netrc"))
		}
		err := readSecretFile(name, func(in io.Reader) (err error) {
			s.Netrc, err = fetch.ReadNetrc(in)
			return err
		})
		if err != nil {
			return nil, fault.New(fault.Usage, fmt.Errorf("read names and passwords: %w", err),
				"netrc(5) describes the format")
		}
	}
	for _, u := range urls {
		s.AddOrigin(u)
	}
	return s, nil
}

// readSecretFile calls read with an open file. Errors name the file once.
func readSecretFile(name string, read func(io.Reader) error) error {
	f, err := userfile.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil && !errors.As(err, new(*fs.PathError)) {
		return fmt.Errorf("%s: %w", name, err)
	} else if err != nil {
		return err
	}
	return nil
}

// describeExposed warns people of what helpers could read in requests for the URLs. It returns ""
// if there is nothing.
func describeExposed(s *fetch.Secrets, urls []string) string {
	var what []string
	for _, u := range urls {
		if x := s.Exposed(u); x != "" && !slices.Contains(what, x) {
			what = append(what, x)
		}
	}
	if len(what) == 0 {
		return ""
	}
	return exposureWarning(strings.Join(what, "; "))
}

// exposureWarning returns the warning that requests are not sent over helpers.
func exposureWarning(what string) string {
	return fmt.Sprintf("using this device's link only: http:// is not encrypted, and helpers could read the "+
		"requests (%s)", what)
}
