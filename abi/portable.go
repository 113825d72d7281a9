package abi

// Silence is a portable question to which a platform's ABI has no rule.
type Silence struct {
	// Question is the name of the question.
	Question string `json:"question"`
	// Why says what there is instead, or why there is nothing.
	Why     string   `json:"why"`
	Sources []Source `json:"sources"`
}
