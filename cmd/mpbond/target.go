package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// target is where a command writes what it makes: a file that appears when it is whole,
// or a stream.
type target struct {
	io.Writer
	temporary *os.File // nil for a stream
	name      string
	keep      bool
	close     func() error
}

// openTarget opens the target that name says, "-" for stdout; with keep none that is
// there by then is replaced. Only plain files are written under a temporary name first:
// to rename over, say, /dev/null would destroy it.
func openTarget(name string, keep bool, stdout io.Writer) (*target, error) {
	if name == "-" {
		return &target{Writer: stdout, close: func() error { return nil }}, nil
	}
	if st, err := userfile.Stat(name); err == nil && !st.Mode().IsRegular() {
		f, err := userfile.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &target{Writer: f, close: f.Close}, nil
	}
	f, err := userfile.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".part-*")
	if err != nil {
		return nil, err
	}
	return &target{f, f, name, keep, f.Close}, nil
}

// finish closes the target and gives a file its name.
func (t *target) finish() error {
	if t.temporary == nil {
		return t.close()
	}
	if err := errors.Join(t.temporary.Chmod(newFileMode()), t.close()); err != nil {
		return err
	}
	if t.keep {
		if err := userfile.Link(t.temporary.Name(), t.name); err != nil {
			return err // there is one by now
		}
		return userfile.Remove(t.temporary.Name())
	}
	return userfile.Rename(t.temporary.Name(), t.name)
}

// abandon removes what was not finished. After finish it does nothing.
func (t *target) abandon() {
	_ = t.close()
	if t.temporary != nil {
		_ = userfile.Remove(t.temporary.Name())
	}
}

// apart refuses an output that is the same file as an input or another output, which
// would be lost: of others are names, "-" and addresses among them, and open streams.
func apart(flag, name string, others []string, open ...any) error {
	st, err := userfile.Stat(name)
	if name == "" || name == "-" || err != nil || !st.Mode().IsRegular() {
		return nil
	}
	same := func(other os.FileInfo, err error) bool { return err == nil && os.SameFile(st, other) }
	for _, other := range others {
		if same(userfile.Stat(other)) {
			return fault.New(fault.Usage, fmt.Errorf("%s %s is %s itself, which would be lost", flag, name, other), "name another file")
		}
	}
	for _, stream := range open {
		if f, ok := stream.(*os.File); ok && same(f.Stat()) {
			return fault.New(fault.Usage, fmt.Errorf("%s %s is read or written besides, and would be lost", flag, name), "name another file")
		}
	}
	return nil
}
