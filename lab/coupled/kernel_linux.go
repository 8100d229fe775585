// SPDX-License-Identifier: Apache-2.0

package coupled

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"mpbond/base/fault"
)

//go:embed bpf/coupled.o
var object []byte

// Kernel holds the algorithms in the kernel. Any network namespace of the machine may choose them.
// Connections that use one when it is closed keep it.
type Kernel struct {
	closers []io.Closer
}

// Register gives the kernel all algorithms, under the names of CongestionName. It needs root and a
// kernel with BTF.
func Register() (*Kernel, error) {
	k, err := register()
	if err != nil {
		return nil, fault.New(fault.Unsupported, fmt.Errorf("coupled congestion control: %w", err),
			"it needs root, and Linux 6.4 or newer with BPF and BTF (CONFIG_DEBUG_INFO_BTF)")
	}
	return k, nil
}

func register() (_ *Kernel, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	collection, err := loadObject()
	if err != nil {
		return nil, err
	}
	k := &Kernel{closers: []io.Closer{closerOf(collection.Close)}}
	defer func() {
		if err != nil {
			_ = k.Close()
		}
	}()
	for _, name := range names {
		l, err := link.AttachStructOps(link.StructOpsOptions{Map: collection.Maps[name]})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		k.closers = append(k.closers, l)
	}
	return k, nil
}

// loadObject loads the programs, and names the algorithms after this process.
func loadObject() (*ebpf.Collection, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	for a, name := range names {
		m := spec.Maps[name]
		if m == nil || len(m.Contents) == 0 {
			return nil, fmt.Errorf("coupled.o has no %s", name)
		}
		user, _ := m.Contents[0].Value.([]byte)
		at := bytes.Index(user, append([]byte(name), 0))
		if at < 0 {
			return nil, fmt.Errorf("coupled.o does not name %s", name)
		}
		copy(user[at:at+maxName-1], CongestionName(Algorithm(a)))
	}
	return ebpf.NewCollection(spec)
}

// maxName is TCP_CA_NAME_MAX, with a zero byte at the end.
const maxName = 16

// CongestionName returns the name by which TCP_CONGESTION and sysctl know an algorithm while this
// process has it registered. Other processes of the same PID namespace have names of their own.
func CongestionName(a Algorithm) string { return fmt.Sprintf("%v_%d", a, os.Getpid()) }

// Close removes the algorithms from the kernel.
func (k *Kernel) Close() error {
	var errs []error
	for i := len(k.closers) - 1; i >= 0; i-- {
		errs = append(errs, k.closers[i].Close())
	}
	k.closers = nil
	return errors.Join(errs...)
}

type closerOf func()

func (f closerOf) Close() error { f(); return nil }
