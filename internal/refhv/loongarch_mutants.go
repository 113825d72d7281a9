package refhv

// LoongArchMutants are mistakes that an implementer of loongarch-kvm could make, by topic.
func LoongArchMutants() []Mutant[*LoongArch] { return nil }
