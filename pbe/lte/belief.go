package lte

import (
	"math"

	"mpbond/pbe/cell"
)

// Every word has an RNTI, as that is what its CRC does not explain, so one by chance
// looks like a message to a stranger if its place is in his search space and its
// fields can be. Of a stranger a word is believed by its odds: how much likelier what
// is seen is of a message than of a word by chance, as natural logarithms. The figures
// are of srsRAN 4G's recordings with noise added, to 5 to 20 dB: at 10 dB enough
// believes all but 1 % of the messages to strangers, and one word by chance in eight.
const enough = 3.0

// expectation is what the soft bits of a place leave unexplained of a word that was
// sent: the weight of those that noise turned round, and its variance.
type expectation struct{ lost, spread float64 }

func expect(elements []element) (e expectation) {
	for i := range elements {
		e.lost += elements[i].lost
		e.spread += elements[i].spread
	}
	return e
}

// allowed is how much a word leaves at most: four deviations, and as the weight of
// few bits is not normal, one bit more that is wrong by as much as one in fifty is.
func (e expectation) allowed() float32 { return float32(e.lost + 4*math.Sqrt(e.spread) + 8) }

// odds are those of the finding at a place whose soft bits weigh all.
func (c Cell) odds(f *finding, at where, e expectation, all float64) float64 {
	return evidence(f, e, all) + c.plausibility(&f.dci, at)
}

// evidence is what the agreement says. The best word for soft bits that hold none
// agrees by the cube root of the code rate in the mean, and varies by .075 at level 1
// (measured, 400 words of each size and level, of noise alone and of other words). What
// is expected of a message is not known better than to .0015, nor is it normal.
func evidence(f *finding, e expectation, all float64) float64 {
	level := float64(f.dci.Level)
	chance := math.Cbrt(float64(f.size+crcBits) / (level * cceBits))
	spread := 0.075 / math.Sqrt(level)
	above := max(f.dci.Agreement-chance, 0) / spread
	deviation := max(2*math.Sqrt(e.spread)/all, 0.0015)
	below := min(max(1-2*e.lost/all-f.dci.Agreement, 0)/deviation, 2.5)
	return math.Log(spread/deviation) + (above*above-below*below)/2
}

// plausibility is what the place and the fields of d say.
func (c Cell) plausibility(d *DCI, at where) float64 {
	const (
		// For each run of blocks after the second: schedulers make few, and chance half as
		// many as there are groups.
		scattered = -0.7
		// For formats of users who are sent data for longer: their first message may be
		// missed, that of control users is the only one.
		longer = -2.0
		// For a block that comes for the first time, as nine in ten do and by chance a
		// quarter; for one that comes again; and for an MCS that only those have.
		fresh, again, sizeless = 1.2, -1.5, -1.0
		// However strange, what is clear enough is believed.
		unlikely = -3.5
	)
	// So many places of all are those of one user.
	sum := -math.Log(min(float64(candidates(at.level))/float64(at.cces/at.level), 1))
	switch d.Format {
	case cell.Format0, cell.Format1A:
		sum += 1.1 // by chance one in three: half have the flag, of these two thirds blocks
	case cell.Format2:
		sum += longer + [...]float64{1: 0.1, 2: 1}[d.N] // seven or three of eight values for precoding
	default:
		sum += longer
	}
	for _, b := range d.Blocks[:d.N] {
		switch {
		case d.Format == cell.Format0:
			sum += transformable(d.PRB)
			if b.RV > 0 {
				sum += again
			}
		case b.RV == 0:
			sum += fresh
		default:
			sum += again
		}
		if d.Format != cell.Format0 && b.MCS > 28 {
			sum += sizeless
		}
	}
	if !d.Distributed {
		sum += scattered * float64(max(d.PRBs.runs()-2, 0))
	}
	return max(sum, unlikely)
}

// transformable is what it says that an uplink has n blocks: by the factors 2, 3 and 5
// alone, as its transform takes them (36.211 section 5.3.3), or not.
func transformable(n int) float64 {
	for _, f := range [...]int{2, 3, 5} {
		for n > 0 && n%f == 0 {
			n /= f
		}
	}
	if n == 1 {
		return 0.5
	}
	return -4
}
