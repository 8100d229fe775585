//go:build race

package bond

// raceEnabled tells that everything is about ten times slower.
const raceEnabled = true
