package main

import (
	"cmp"
	"context"

	"mpbond/primary"
)

// usePolicy reads the policy file for p, the one that was named or else
// policy.toml, which need not exist.
func (r *role) usePolicy(p *primary.Primary, named string) error {
	path, err := policyPath(r.config)
	if err != nil {
		return err
	}
	r.policy = p
	return p.UsePolicy(cmp.Or(named, path), named != "")
}

// keepPolicy reads the policy file again when it has changed, until ctx ends.
func (r *role) keepPolicy(ctx context.Context) error {
	path := r.policy.PolicyFile()
	changes, stop := watch(path)
	defer stop()
	followed{
		path:    path,
		full:    func() bool { return r.policy.Policy() != nil },
		changed: func() { r.policy.ReloadPolicy(false) },
	}.follow(ctx, nil, changes)
	return nil
}
