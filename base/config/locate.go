// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Locator finds tables and keys in a TOML document that Parse has accepted.
type Locator struct{ tables []keyPosition }

type keyPosition struct {
	name         string // dotted key
	line, column int
	keys         []keyPosition
}

// NewLocator scans a document.
func NewLocator(data []byte) *Locator {
	l := &Locator{tables: []keyPosition{{}}}
	var p unstable.Parser
	p.Reset(data)
	line, begin := 1, 0 // line number and start of the last key's line
	for p.NextExpression() {
		e := p.Expression()
		at := keyPosition{}
		for it := e.Key(); it.Next(); {
			k := it.Node()
			if at.line == 0 {
				for i := begin; i < int(k.Raw.Offset); i++ {
					if data[i] == '\n' {
						line, begin = line+1, i+1
					}
				}
				at.line, at.column = line, int(k.Raw.Offset)-begin+1
			}
			at.name += "." + string(k.Data)
		}
		at.name = strings.TrimPrefix(at.name, ".")
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			l.tables = append(l.tables, at)
		case unstable.KeyValue:
			t := &l.tables[len(l.tables)-1]
			t.keys = append(t.keys, at)
		}
	}
	return l
}

// FindTable returns the position of key in the n-th table of that name, counted from 0, or of the
// table itself if it lacks the key; 0 if there is no such table.
func (l *Locator) FindTable(name string, n int, key string) (line, column int) {
	for _, t := range l.tables[1:] {
		if t.name != name {
			continue
		}
		if n--; n < 0 {
			for _, k := range t.keys {
				if k.name == key {
					return k.line, k.column
				}
			}
			return t.line, t.column
		}
	}
	return 0, 0
}
