"""RST inside other people's training code. Each module needs its package, an extra of rst_tune of the same name."""
