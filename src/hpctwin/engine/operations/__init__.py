"""Operations for other packages: create, advance, fork and inspect a simulation."""
