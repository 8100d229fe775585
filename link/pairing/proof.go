// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"crypto"
	"crypto/rand"

	"github.com/bytemare/opaque"

	"mpbond/base/identity"
	"mpbond/link/wire"
)

// opaqueConfig returns the first configuration that RFC 9807 section 7 recommends, but without key
// stretching. Stretching slows down guesses by an attacker that has stolen a server's records. Our
// record is made for one connection and never stored, and the code is random.
func opaqueConfig(binding []byte) *opaque.Configuration {
	return &opaque.Configuration{
		Context: append([]byte{'m', 'p', 'b', 'o', 'n', 'd', ' ', 'p', 'a', 'i', 'r', wire.Version}, binding...),
		OPRF:    opaque.RistrettoSha512, AKE: opaque.RistrettoSha512,
		KDF: crypto.SHA512, MAC: crypto.SHA512, Hash: crypto.SHA512,
	}
}

// proofContext holds the identities of both ends and the channel binding, which both put into the
// proof.
type proofContext struct {
	caller, acceptor identity.PublicKey
	binding          []byte
}

// callerProof is the caller's side.
type callerProof struct {
	proofContext
	client *opaque.Client
}

// beginProof returns the caller's first message.
func beginProof(p proofContext, secret string) (*callerProof, []byte, error) {
	client, err := opaqueConfig(p.binding).Client()
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
	ke3, _, _, err := c.client.GenerateKE3(m, c.caller[:], c.acceptor[:])
	if err != nil {
		return nil, err
	}
	return ke3.Serialize(), nil
}

// acceptorProof is the acceptor's side.
type acceptorProof struct {
	server *opaque.Server
	mac    []byte // expected from the caller
}

// answerProof returns the acceptor's answer to the caller's first message. The acceptor knows the
// code, so it runs both sides of OPAQUE's registration.
func answerProof(p proofContext, secret string, ke1 []byte) (*acceptorProof, []byte, error) {
	conf := opaqueConfig(p.binding)
	client, err := conf.Client()
	if err != nil {
		return nil, nil, err
	}
	server, err := conf.Server()
	if err != nil {
		return nil, nil, err
	}
	m, err := server.Deserialize.KE1(ke1)
	if err != nil {
		return nil, nil, err
	}
	private, public := conf.KeyGen()
	err = server.SetKeyMaterial(&opaque.ServerKeyMaterial{Identity: p.acceptor[:], PrivateKey: private,
		PublicKeyBytes: public.Encode(), OPRFGlobalSeed: conf.GenerateOPRFSeed()})
	if err != nil {
		return nil, nil, err
	}
	request, err := client.RegistrationInit([]byte(secret))
	if err != nil {
		return nil, nil, err
	}
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	response, err := server.RegistrationResponse(request, id, nil)
	if err != nil {
		return nil, nil, err
	}
	record, _, err := client.RegistrationFinalize(response, p.caller[:], p.acceptor[:])
	if err != nil {
		return nil, nil, err
	}
	ke2, out, err := server.GenerateKE2(m, &opaque.ClientRecord{RegistrationRecord: record,
		CredentialIdentifier: id, ClientIdentity: p.caller[:]})
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
