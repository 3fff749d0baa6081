"""ABI and bytecode of the contracts, compiled from `solidity/` by `npm run contracts`."""
