// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"bytes"
	"testing"

	"mpbond/base/identity"
)

// answerCode registers a code and answers the caller's first message.
func answerCode(p proofContext, secret string, ke1 []byte) (*acceptorProof, []byte, error) {
	r, err := register(p, secret)
	if err != nil {
		return nil, nil, err
	}
	return answerProof(p, r, ke1)
}

// TestReplay checks that the messages of one pairing are useless in another one, even between the
// same devices with the same code.
func TestReplay(t *testing.T) {
	caller, acceptor := identity.PublicKey{1}, identity.PublicKey{2}
	binding := func(b byte) proofContext { return newProofContext(caller, acceptor, bytes.Repeat([]byte{b}, 32)) }
	const secret = "K7QF3M2A"
	c, ke1, err := beginProof(binding(1), secret)
	if err != nil {
		t.Fatal(err)
	}
	a, ke2, err := answerCode(binding(1), secret, ke1)
	if err != nil {
		t.Fatal(err)
	}
	ke3, err := c.finishProof(ke2)
	if err != nil || a.verifyProof(ke3) != nil {
		t.Fatalf("a good one: %v, %v", err, a.verifyProof(ke3))
	}
	// Replay to the acceptor.
	for b := range byte(2) {
		again, _, err := answerCode(binding(b), secret, ke1)
		if err != nil || again.verifyProof(ke3) == nil {
			t.Errorf("KE3 was taken again: %v", err)
		}
	}
	// Replay to the caller.
	c, _, err = beginProof(binding(1), secret)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.finishProof(ke2); err == nil {
		t.Error("KE2 was taken again")
	}
}

// TestProofBinds checks that code, keys and connection must be the same at both ends.
func TestProofBinds(t *testing.T) {
	caller, acceptor, binding := identity.PublicKey{1}, identity.PublicKey{2}, bytes.Repeat([]byte{3}, 32)
	good := newProofContext(caller, acceptor, binding)
	run := func(p proofContext, secret string) error {
		c, ke1, err := beginProof(good, "K7QF3M2A")
		if err != nil {
			t.Fatal(err)
		}
		a, ke2, err := answerCode(p, secret, ke1)
		if err != nil {
			t.Fatal(err)
		}
		ke3, err := c.finishProof(ke2)
		if err != nil {
			return err
		}
		return a.verifyProof(ke3)
	}
	if err := run(good, "K7QF3M2A"); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]proofContext{
		"caller": newProofContext(identity.PublicKey{9}, acceptor, binding), "acceptor": newProofContext(caller,
			identity.PublicKey{9}, binding),
		"connection": newProofContext(caller, acceptor, bytes.Repeat([]byte{4}, 32)),
	} {
		if run(p, "K7QF3M2A") == nil {
			t.Errorf("another %s goes unnoticed", name)
		}
	}
	if run(good, "K7QF3M2B") == nil {
		t.Error("another code goes unnoticed")
	}
}

// FuzzProof checks that no message causes a panic, and that only the right one is accepted.
func FuzzProof(f *testing.F) {
	p := newProofContext(identity.PublicKey{1}, identity.PublicKey{2}, make([]byte, 32))
	const secret = "K7QF3M2A"
	c, ke1, err := beginProof(p, secret)
	if err != nil {
		f.Fatal(err)
	}
	_, ke2, err := answerCode(p, secret, ke1)
	if err != nil {
		f.Fatal(err)
	}
	ke3, err := c.finishProof(ke2)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ke1, ke2, ke3)
	f.Add([]byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, in1, in2, in3 []byte) {
		if a, _, err := answerCode(p, secret, in1); err == nil && a.verifyProof(in3) == nil {
			t.Error("a caller that does not know the code passes")
		}
		c, _, err := beginProof(p, secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.finishProof(in2); err == nil {
			t.Error("an acceptor that does not know the code passes")
		}
	})
}
