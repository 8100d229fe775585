// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// deviceHomes are the home directories of mpbond devices, one for each node, with keys and trust
// files.
type deviceHomes struct {
	bench        *Bench
	root, mpbond string
	publicKeys   map[string]string // by node
}

// makeHomes makes homes below root and a key in each. mpbond is the path of the program.
func (b *Bench) makeHomes(ctx context.Context, mpbond, root string, nodes []string) (*deviceHomes, error) {
	h := &deviceHomes{b, root, mpbond, map[string]string{}}
	for _, node := range nodes {
		if err := os.MkdirAll(h.homeDir(node), 0o700); err != nil {
			return nil, err
		}
		out, err := h.runMPBond(ctx, node, "keygen", "--json")
		if err != nil {
			return nil, err
		}
		var key struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal([]byte(lastLine(out)), &key); err != nil {
			return nil, fmt.Errorf("mpbond keygen in %s: %w: %s", node, err, out)
		}
		h.publicKeys[node] = key.Key
	}
	return h, nil
}

func (h *deviceHomes) homeDir(node string) string { return filepath.Join(h.root, node) }

func (h *deviceHomes) homeEnv(node string) string { return "MPBOND_HOME=" + h.homeDir(node) }

// runMPBond runs mpbond in a node with its home directory.
func (h *deviceHomes) runMPBond(ctx context.Context, node string, args ...string) (string, error) {
	return h.bench.Run(ctx, node, append([]string{"env", h.homeEnv(node), h.mpbond}, args...)...)
}

// addTrust makes a node trust a peer in a role, with further options of `mpbond trust add`.
func (h *deviceHomes) addTrust(ctx context.Context, node, peer, role string, options ...string) error {
	_, err := h.runMPBond(ctx, node, append([]string{"trust", "add", peer, "--role", role, "--key", h.publicKeys[peer]},
		options...)...)
	return err
}
