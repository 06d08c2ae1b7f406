package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseSize reads a number of bytes with a unit: "5MB", "1.5 GiB".
func ParseSize(s string) (int64, error) {
	i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if i <= 0 {
		return 0, fmt.Errorf("bad size %q: write a number and a unit, as in \"5MB\" or \"1GiB\"", s)
	}
	unit := sizeUnit(strings.TrimLeft(s[i:], " "))
	n, err := strconv.ParseFloat(s[:i], 64)
	if unit == 0 || err != nil {
		return 0, fmt.Errorf("bad size %q: units are B, KB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB", s)
	}
	if n *= unit; n >= math.MaxInt64 {
		return 0, fmt.Errorf("bad size %q: too large", s)
	}
	return int64(n), nil
}

// ParseDuration reads Go's durations, and whole days in front of them: "90s",
// "2h30m", "7d", "1d12h". Negative ones are refused.
func ParseDuration(s string) (time.Duration, error) {
	rest, sum := s, time.Duration(0)
	if digits := strings.TrimLeft(s, "0123456789"); strings.HasPrefix(digits, "d") {
		number := s[:len(s)-len(digits)]
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n > int64(math.MaxInt64/(24*time.Hour)) {
			return 0, fmt.Errorf("bad duration %q: too long", s)
		}
		sum, rest = time.Duration(n)*24*time.Hour, digits[1:]
		if rest == "" {
			return sum, nil
		}
	}
	d, err := time.ParseDuration(rest)
	switch {
	case err != nil:
		return 0, fmt.Errorf("bad duration %q: write a number and a unit, as in \"90s\", \"2h30m\" or \"7d\"", s)
	case d < 0 || strings.HasPrefix(rest, "-"):
		return 0, fmt.Errorf("bad duration %q: negative", s)
	case sum > math.MaxInt64-d:
		return 0, fmt.Errorf("bad duration %q: too long", s)
	}
	return sum + d, nil
}

// FormatDuration writes a duration so that ParseDuration reads it, in days where
// it is whole ones.
func FormatDuration(d time.Duration) string {
	if day := 24 * time.Hour; d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}

func sizeUnit(name string) float64 {
	switch name {
	case "B":
		return 1
	case "kB", "KB":
		return 1e3
	case "MB":
		return 1e6
	case "GB":
		return 1e9
	case "TB":
		return 1e12
	case "KiB":
		return 1 << 10
	case "MiB":
		return 1 << 20
	case "GiB":
		return 1 << 30
	case "TiB":
		return 1 << 40
	}
	return 0
}
