package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSources(t *testing.T) {
	for _, test := range []struct{ paths, names []string }{
		{[]string{"results"}, []string{""}},
		{[]string{"before/results.json", "/x/after/"}, []string{"before", "after"}},
		{[]string{"a/kvm", "b/kvm/results.json", "b/xen"}, []string{"a/kvm", "b/kvm", "xen"}},
		{[]string{"old.json", "results.json"}, []string{"old.json", "results.json"}},
	} {
		assert.Equal(t, test.names, sources(test.paths))
	}
}
