// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"crypto"
	"crypto/rand"
	"slices"

	"github.com/bytemare/opaque"

	"mpbond/base/identity"
	"mpbond/link/wire"
)

// opaqueConfig returns the first configuration that RFC 9807 section 7 recommends, but without key
// stretching. Stretching slows down guesses by an attacker that has stolen a server's records. The
// record of a short code is made for one connection and never stored; that of a fleet's code is
// stored, and such a code has 80 random bits.
func opaqueConfig(context []byte) *opaque.Configuration {
	return &opaque.Configuration{
		Context: append([]byte{'m', 'p', 'b', 'o', 'n', 'd', ' ', 'p', 'a', 'i', 'r', wire.Version}, context...),
		OPRF:    opaque.RistrettoSha512, AKE: opaque.RistrettoSha512,
		KDF: crypto.SHA512, MAC: crypto.SHA512, Hash: crypto.SHA512,
	}
}

// proofContext is what both ends put into the proof besides the code: who they are, and the channel
// between them.
type proofContext struct {
	caller, acceptor []byte // identities in OPAQUE
	channel          []byte
}

// newProofContext returns the context of a proof between two devices over a channel.
func newProofContext(caller, acceptor identity.PublicKey, binding []byte) proofContext {
	return proofContext{caller[:], acceptor[:], binding}
}

// newFleetContext returns the context of a proof with a fleet's code. Its record is made before the
// devices are known. So the identities in the record are the code and any server of a fleet, and the
// keys of both devices belong to the channel.
func newFleetContext(code string, caller, acceptor identity.PublicKey, binding []byte) proofContext {
	return proofContext{[]byte(code), []byte("mpbond fleet"), slices.Concat(binding, caller[:], acceptor[:])}
}

// callerProof is the caller's side.
type callerProof struct {
	proofContext
	client *opaque.Client
}

// beginProof returns the caller's first message.
func beginProof(p proofContext, secret string) (*callerProof, []byte, error) {
	client, err := opaqueConfig(p.channel).Client()
	if err != nil {
		return nil, nil, err
	}
	ke1, err := client.GenerateKE1([]byte(secret))
	if err != nil {
		return nil, nil, err
	}
	return &callerProof{p, client}, ke1.Serialize(), nil
}

// finishProof checks the acceptor's message and returns the caller's second message. An error means
// that the acceptor knows another code, or sees other keys.
func (c *callerProof) finishProof(ke2 []byte) ([]byte, error) {
	defer c.client.ClearState()
	m, err := c.client.Deserialize.KE2(ke2)
	if err != nil {
		return nil, err
	}
	ke3, _, _, err := c.client.GenerateKE3(m, c.caller, c.acceptor)
	if err != nil {
		return nil, err
	}
	return ke3.Serialize(), nil
}

// Registration is what an acceptor needs to check the proof of a code: OPAQUE's registration record with
// the server's keys for it. The code cannot be derived from it, only guessed.
type Registration struct {
	ID     []byte `json:"id"`     // OPAQUE's credential identifier
	Keys   []byte `json:"keys"`   // of the server, private ones among them
	Record []byte `json:"record"` // about the client
}

// register runs both sides of OPAQUE's registration of a code. The context's channel plays no part in it.
func register(p proofContext, secret string) (r Registration, err error) {
	conf := opaqueConfig(nil)
	client, err := conf.Client()
	if err != nil {
		return r, err
	}
	server, err := conf.Server()
	if err != nil {
		return r, err
	}
	private, public := conf.KeyGen()
	keys := &opaque.ServerKeyMaterial{Identity: p.acceptor, PrivateKey: private, PublicKeyBytes: public.Encode(),
		OPRFGlobalSeed: conf.GenerateOPRFSeed()}
	if err := server.SetKeyMaterial(keys); err != nil {
		return r, err
	}
	request, err := client.RegistrationInit([]byte(secret))
	if err != nil {
		return r, err
	}
	r.ID = make([]byte, 32)
	_, _ = rand.Read(r.ID) // never fails
	response, err := server.RegistrationResponse(request, r.ID, nil)
	if err != nil {
		return r, err
	}
	record, _, err := client.RegistrationFinalize(response, p.caller, p.acceptor)
	if err != nil {
		return r, err
	}
	r.Keys, r.Record = keys.Encode(), record.Serialize()
	return r, nil
}

// acceptorProof is the acceptor's side.
type acceptorProof struct {
	server *opaque.Server
	mac    []byte // expected from the caller
}

// answerProof returns the acceptor's answer to the caller's first message.
func answerProof(p proofContext, r Registration, ke1 []byte) (*acceptorProof, []byte, error) {
	conf := opaqueConfig(p.channel)
	server, err := conf.Server()
	if err != nil {
		return nil, nil, err
	}
	m, err := server.Deserialize.KE1(ke1)
	if err != nil {
		return nil, nil, err
	}
	keys, err := conf.DecodeServerKeyMaterial(r.Keys)
	if err != nil {
		return nil, nil, err
	}
	if err := server.SetKeyMaterial(keys); err != nil {
		return nil, nil, err
	}
	record, err := server.Deserialize.RegistrationRecord(r.Record)
	if err != nil {
		return nil, nil, err
	}
	ke2, out, err := server.GenerateKE2(m, &opaque.ClientRecord{RegistrationRecord: record,
		CredentialIdentifier: r.ID, ClientIdentity: p.caller})
	if err != nil {
		return nil, nil, err
	}
	return &acceptorProof{server, out.ClientMAC}, ke2.Serialize(), nil
}

// verifyProof returns an error if the caller does not know the code.
func (a *acceptorProof) verifyProof(ke3 []byte) error {
	m, err := a.server.Deserialize.KE3(ke3)
	if err != nil {
		return err
	}
	return a.server.LoginFinish(m, a.mac)
}
