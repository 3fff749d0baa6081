// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @title A stand-in for USDC on a local chain: six decimals, and anyone may mint. It is worth nothing.
contract TestUSDC is ERC20 {
    constructor() ERC20("Test USD Coin", "USDC") {}

    /// @inheritdoc ERC20
    function decimals() public pure override returns (uint8) {
        return 6;
    }

    /// @notice Create tokens for anyone who asks.
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}
