package store

import (
	"cmp"
	"strings"
)

// compareVersions orders Debian package versions, "[epoch:]upstream[-revision]",
// as Debian Policy 5.6.12 says.
func compareVersions(a, b string) int {
	ea, ua, ra := splitVersion(a)
	eb, ub, rb := splitVersion(b)
	return cmp.Or(compareDigits(ea, eb), compareVersionPart(ua, ub), compareVersionPart(ra, rb))
}

func splitVersion(v string) (epoch, upstream, revision string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		epoch, v = e, rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// compareVersionPart compares, in turns, the longest stretches without digits
// and the longest numbers at the front of both.
func compareVersionPart(a, b string) int {
	for a != "" || b != "" {
		i, j := 0, 0
		for (i < len(a) && !isDigit(a[i])) || (j < len(b) && !isDigit(b[j])) {
			ca, cb := order(a, i), order(b, j)
			if ca != cb {
				return cmp.Compare(ca, cb)
			}
			i, j = i+1, j+1
		}
		a, b = a[i:], b[j:]
		i, j = digits(a), digits(b)
		if c := compareDigits(a[:i], b[:j]); c != 0 {
			return c
		}
		a, b = a[i:], b[j:]
	}
	return 0
}

// order ranks the character at s[i]: a tilde before the end, the end (and a
// digit, where the stretch without digits ends) before letters, letters before
// all else.
func order(s string, i int) int {
	switch {
	case i >= len(s) || isDigit(s[i]):
		return 0
	case s[i] == '~':
		return -1
	case 'A' <= s[i] && s[i] <= 'Z', 'a' <= s[i] && s[i] <= 'z':
		return int(s[i])
	default:
		return int(s[i]) + 256
	}
}

func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// digits is the number of digits at the front of s.
func digits(s string) int {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// satisfies tells whether a version is what was asked for: the same one, or one
// that goes on where the wish ends. "6.12" is satisfied by 6.12 and 6.12.107-1,
// not by 6.120. An epoch counts only where the wish has one; an empty wish is
// satisfied by everything.
func satisfies(version, wish string) bool {
	if !strings.Contains(wish, ":") {
		if _, rest, ok := strings.Cut(version, ":"); ok {
			version = rest
		}
	}
	rest, ok := strings.CutPrefix(version, wish)
	if !ok {
		return false
	}
	return rest == "" || wish == "" || !isDigit(rest[0]) || !isDigit(wish[len(wish)-1])
}
