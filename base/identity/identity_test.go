// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"mpbond/base/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustKey(t testing.TB) *Key {
	t.Helper()
	k, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyText(t *testing.T) {
	k := mustKey(t).Public()
	s := k.String()
	if keyTextLen != 60 || len(s) != keyTextLen || s != strings.ToLower(s) {
		t.Fatalf("text form %q", s)
	}
	for _, in := range []string{s, strings.ToUpper(s), "  " + s + "\n"} {
		if got, err := ParsePublicKey(in); err != nil || got != k {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

// TestKeyTextIsStable pins the text forms, which users have in files.
func TestKeyTextIsStable(t *testing.T) {
	var k PublicKey
	for i := range k {
		k[i] = byte(i)
	}
	const want = "mpb1aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypya6um"
	if got := k.String(); got != want {
		t.Errorf("key text %s, want %s", got, want)
	}
	if got := k.ID().String(); got != "FSSH-SK6M-RNDD-ONEK" {
		t.Errorf("ID %s", got)
	}
}

func TestTyposAreRefused(t *testing.T) {
	s := mustKey(t).Public().String()
	missed := 0
	for i := range s {
		for _, c := range "a2z7" {
			typo := s[:i] + string(c) + s[i+1:]
			if typo == s {
				continue
			}
			if _, err := ParsePublicKey(typo); err == nil {
				missed++
			} else if !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
				t.Fatalf("error %v of kind %v, hint %q", err, fault.KindOf(err), fault.HintOf(err))
			}
		}
	}
	for i := range len(s) - 1 {
		swapped := s[:i] + string(s[i+1]) + string(s[i]) + s[i+2:]
		if _, err := ParsePublicKey(swapped); err == nil && swapped != s {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("%d typos went unnoticed", missed)
	}
	for in, text := range map[string]string{
		"": "empty", "ssh-ed25519 AAAA": "begin with", s[:59]: "59 characters", s + "a": "61 characters",
		s[:10] + "0" + s[11:]: "character", s[:20] + " " + s[21:]: "character", s[:20] + "\n" + s[21:]: "",
	} {
		if _, err := ParsePublicKey(in); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: error %v, want %q in it", in, err, text)
		}
	}
}

func FuzzParsePublicKey(f *testing.F) {
	f.Add("mpb1aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypya6um")
	f.Add("mpb1")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParsePublicKey(s)
		if err == nil && k.String() != strings.ToLower(strings.TrimSpace(s)) {
			t.Errorf("%q has a second spelling %q", k, s)
		}
	})
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "device.key")
	if _, err := LoadKey(path); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "keygen") {
		t.Errorf("no file: %v", err)
	}
	made, err := CreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", st.Mode(), err)
	}
	read, err := LoadKey(path)
	if err != nil || read.Public() != made.Public() {
		t.Fatalf("read back %v, %v", read, err)
	}
	if _, err := CreateKey(path); !fault.Is(err, fault.Exists) {
		t.Errorf("second create: %v", err)
	}
	if again, err := LoadKey(path); err != nil || again.Public() != made.Public() {
		t.Error("the second create changed the file")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.new")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestManyProcessesCreateOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device.key")
	var wg sync.WaitGroup
	var mu sync.Mutex
	keys, creators := map[PublicKey]bool{}, 0
	for range 8 {
		wg.Go(func() {
			k, created, err := LoadOrCreateKey(path)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			keys[k.Public()] = true
			if created {
				creators++
			}
		})
	}
	wg.Wait()
	if len(keys) != 1 || creators != 1 {
		t.Errorf("%d keys, %d creators", len(keys), creators)
	}
}

func TestBadKeyFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "device.key")
	if _, err := CreateKey(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const rsaType = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"
	for name, data := range map[string][]byte{
		"empty": nil, "garbage": []byte("hello"), "other type": []byte(rsaType), "truncated": good[:len(good)/2],
		"damaged": bytes.Replace(good, good[40:44], []byte("AAAA"), 1), "all zero": make([]byte, maxKeyFile*2),
	} {
		p := filepath.Join(dir, "bad.key")
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(p); !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
			t.Errorf("%s: error %v of kind %q", name, err, fault.KindOf(err))
		}
	}
	for _, mode := range []os.FileMode{0o644, 0o640, 0o604, 0o660, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(path); !fault.Is(err, fault.Permission) ||
			!strings.Contains(fault.HintOf(err), "chmod 600") {
			t.Errorf("mode %o: %v, hint %q", mode, err, fault.HintOf(err))
		}
	}
	if _, err := LoadKey(dir); err == nil {
		t.Error("a directory passed as a key")
	}
}

func TestKeyIsNeverPrinted(t *testing.T) {
	k := mustKey(t)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", k, "in", struct{ K *Key }{k})
	js, err := json.Marshal(map[string]any{"k": k})
	if err != nil {
		t.Fatal(err)
	}
	var none *Key
	out := fmt.Sprintf("%v %+v %#v %s %x %d %v %v", k, k, k, k, k, k, struct{ K *Key }{k},
		none) + log.String() + string(js)
	for _, secret := range []string{fmt.Sprintf("%x", []byte(k.private[:8])), fmt.Sprint([]byte(k.private[:8]))[1:20]} {
		if strings.Contains(out, secret) {
			t.Errorf("secret in %s", out)
		}
	}
	if !strings.Contains(out, k.ID().String()) {
		t.Errorf("no ID in %s", out)
	}
}

// TestDerive checks that secrets depend on key and purpose.
func TestDerive(t *testing.T) {
	seen := map[string]bool{}
	a, b := mustKey(t), mustKey(t)
	for _, k := range []*Key{a, b, a} {
		for _, purpose := range []string{"one", "two"} {
			s, err := k.Derive(purpose)
			if err != nil || len(s) != 32 {
				t.Fatal(len(s), err)
			}
			seen[string(s)] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d secrets of 4", len(seen))
	}
}
