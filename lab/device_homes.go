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

// makeDeviceHomes makes homes below root and a key in each. mpbond is the path of the program.
func (b *Bench) makeDeviceHomes(ctx context.Context, mpbond, root string, nodes []string) (*deviceHomes, error) {
	h := &deviceHomes{b, root, mpbond, map[string]string{}}
	for _, node := range nodes {
		if err := os.MkdirAll(h.nodeHomeDir(node), 0o700); err != nil {
			return nil, err
		}
		out, err := h.runMPBondInNode(ctx, node, "keygen", "--json")
		if err != nil {
			return nil, err
		}
		var key struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal([]byte(lastNonEmptyLine(out)), &key); err != nil {
			return nil, fmt.Errorf("mpbond keygen in %s: %w: %s", node, err, out)
		}
		h.publicKeys[node] = key.Key
	}
	return h, nil
}

func (h *deviceHomes) nodeHomeDir(node string) string { return filepath.Join(h.root, node) }

func (h *deviceHomes) nodeHomeEnv(node string) string { return "MPBOND_HOME=" + h.nodeHomeDir(node) }

// runMPBondInNode runs mpbond in a node with its home directory.
func (h *deviceHomes) runMPBondInNode(ctx context.Context, node string, args ...string) (string, error) {
	return h.bench.Run(ctx, node, append([]string{"env", h.nodeHomeEnv(node), h.mpbond}, args...)...)
}

// addTrustedPeer makes a node trust a peer in a role, with further options of `mpbond trust add`.
func (h *deviceHomes) addTrustedPeer(ctx context.Context, node, peer, role string, options ...string) error {
	_, err := h.runMPBondInNode(ctx, node, append([]string{"trust", "add", peer, "--role", role, "--key",
		h.publicKeys[peer]},
		options...)...)
	return err
}
