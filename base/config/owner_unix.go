// SPDX-License-Identifier: Apache-2.0

//go:build unix

package config

import (
	"os"
	"syscall"

	"mpbond/base/userfile"
)

// keepFileOwner sets the owner of f to that of the file that it will replace.
func keepFileOwner(f *os.File, old os.FileInfo) error {
	st, ok := old.Sys().(*syscall.Stat_t)
	now, err := f.Stat()
	if err != nil {
		return err
	}
	has, same := now.Sys().(*syscall.Stat_t)
	if !ok || !same || st.Uid == has.Uid && st.Gid == has.Gid {
		return nil
	}
	return userfile.WithOwnerRights(f.Name(), func(string) error { return f.Chown(int(st.Uid), int(st.Gid)) })
}
