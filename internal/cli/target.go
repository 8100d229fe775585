// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// Target is the output of a command: a stream, or a file that appears only when complete.
type Target struct {
	io.Writer
	// File is the file under its temporary name, nil for a stream.
	File *os.File
	// Name is the name that Finish gives to the file.
	Name string

	keep  bool
	close func() error
}

// Close closes the target. A file keeps its temporary name.
func (t *Target) Close() error { return t.close() }

// OpenTarget opens the output with that name, "-" for stdout. With keep an existing file is not
// replaced. Only plain files are written under a temporary name first: to rename over, say,
// /dev/null would destroy it. The caller must call Finish or Abandon.
func OpenTarget(name string, keep bool, stdout io.Writer) (*Target, error) {
	if name == "-" {
		return &Target{Writer: stdout, close: func() error { return nil }}, nil
	}
	if st, err := userfile.Stat(name); err == nil && !st.Mode().IsRegular() {
		f, err := userfile.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &Target{Writer: f, close: f.Close}, nil
	}
	f, err := userfile.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".part-*")
	if err != nil {
		return nil, err
	}
	return &Target{Writer: f, File: f, Name: name, keep: keep, close: f.Close}, nil
}

// Finish closes the target and gives a file its name.
func (t *Target) Finish() error {
	if t.File == nil {
		return t.close()
	}
	if err := errors.Join(t.File.Chmod(NewFileMode()), t.close()); err != nil {
		return err
	}
	if t.keep {
		if err := userfile.Link(t.File.Name(), t.Name); err != nil {
			return err // another program has created the file
		}
		return userfile.Remove(t.File.Name())
	}
	return userfile.Rename(t.File.Name(), t.Name)
}

// Abandon removes an unfinished file. After Finish it does nothing.
func (t *Target) Abandon() {
	_ = t.close()
	if t.File != nil {
		_ = userfile.Remove(t.File.Name())
	}
}

// RefuseSameFile returns an error if the output with that name is also an input or another output:
// writing would destroy it. Others holds names, and may hold "-" and addresses. Open holds open
// streams.
func RefuseSameFile(flag, name string, others []string, open ...any) error {
	st, err := userfile.Stat(name)
	if name == "" || name == "-" || err != nil || !st.Mode().IsRegular() {
		return nil
	}
	same := func(other os.FileInfo, err error) bool { return err == nil && os.SameFile(st, other) }
	for _, other := range others {
		if same(userfile.Stat(other)) {
			return fault.New(fault.Usage, fmt.Errorf("%s %s is also %s, which would be lost", flag, name, other),
				"name another file")
		}
	}
	for _, stream := range open {
		if f, ok := stream.(*os.File); ok && same(f.Stat()) {
			err := fmt.Errorf("%s %s is also read or written by this command, and would be lost", flag, name)
			return fault.New(fault.Usage, err, "name another file")

		}
	}
	return nil
}
