package page

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"mpbond/link/tcp"
)

// Limits of entering. Of a code of 40 bits, so many tries a minute find one in 70 000
// years.
const (
	maxSessions   = 64
	sessionTime   = 12 * time.Hour // since it was last used
	triesOfOne    = 5              // a minute, of one address
	triesTogether = 30
)

// sessions are those who told the code.
type sessions struct {
	code string

	mu    sync.Mutex
	tries tcp.Tries[netip.Prefix]
	all   tcp.Tries[bool]
	used  map[string]time.Time // by token
}

func newSessions(code string) *sessions {
	return &sessions{code: plain(code), used: map[string]time.Time{},
		tries: tcp.Tries[netip.Prefix]{PerMinute: triesOfOne}, all: tcp.Tries[bool]{PerMinute: triesTogether}}
}

// plain is a code as people may write it: without dashes, and with what looks like a
// digit as one.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '-', ' ', '\t', '\n':
			return -1
		case 'O':
			return '0'
		case 'I', 'L':
			return '1'
		}
		return r
	}, strings.ToUpper(s))
}

// entered is what came of a try.
type entered uint8

const (
	welcome entered = iota
	wrong
	tooMany
)

// enter gives a token to who tells the code.
func (s *sessions) enter(from net.Addr, code string, now time.Time) (token string, e entered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tries.Take(tcp.Source(from), now) || !s.all.Take(true, now) {
		return "", tooMany
	}
	if subtle.ConstantTimeCompare([]byte(plain(code)), []byte(s.code)) != 1 {
		return "", wrong
	}
	for len(s.used) >= maxSessions {
		oldest, at := "", now.Add(time.Hour)
		for t, used := range s.used {
			if used.Before(at) {
				oldest, at = t, used
			}
		}
		delete(s.used, oldest)
	}
	token = rand.Text()
	s.used[token] = now
	return token, welcome
}

// known tells whether a token is that of a session, which lasts on. A token has 128
// random bits: who it is looked up by tells nothing to guess it by.
func (s *sessions) known(token string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	used, ok := s.used[token]
	if !ok {
		return false
	}
	if now.Sub(used) > sessionTime {
		delete(s.used, token)
		return false
	}
	s.used[token] = now
	return true
}
