package transport

// flying are the packets sent that are remembered, by their numbers, which have no
// gaps. The zero value is empty.
type flying struct {
	first uint64
	n     int
	ring  []packet // length a power of two, or none
}

// at is the packet of a number, nil if it is not remembered. It is valid until the next
// add.
func (f *flying) at(number uint64) *packet {
	if number < f.first || number-f.first >= uint64(f.n) {
		return nil
	}
	return &f.ring[number&uint64(len(f.ring)-1)]
}

// add remembers the packet of the number after the last.
func (f *flying) add(number uint64, p packet) {
	if f.n == 0 {
		f.first = number
	}
	if f.n == len(f.ring) {
		old := *f
		f.ring = make([]packet, max(16, 2*len(old.ring)))
		for i := range uint64(old.n) {
			*f.at(old.first + i) = *old.at(old.first + i)
		}
	}
	f.n++
	*f.at(number) = p
}

// drop forgets the lowest.
func (f *flying) drop() {
	f.first++
	f.n--
}
