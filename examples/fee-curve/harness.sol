// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import "./Submission.sol";

/// A constant-product pool with the fee that the submission asks for, traded against 400 times.
/// The market price walks; an informed trader takes what is mispriced, another one pays for convenience.
contract Harness {
    uint256 constant ONE = 1e9;
    uint256 constant MOST = 100_000; // a tenth, in millionths

    Submission curve;

    struct Pool {
        uint256 x;
        uint256 y;
        uint256 price;
        uint256 volume;
        uint256 seed;
    }

    function setUp() external {
        curve = new Submission();
    }

    function start() internal pure returns (Pool memory) {
        return Pool(1_000_000 * ONE, 1_000_000 * ONE, ONE, 0, 0xc1a4a);
    }

    function fee(Pool memory pool, uint256 amount) internal view returns (uint256) {
        return curve.fee(pool.x, pool.y, amount, pool.volume);
    }

    /// Sell `amount` of x into the pool; what comes out.
    function sell(Pool memory pool, uint256 amount) internal view returns (uint256 out) {
        uint256 kept = (amount * (1_000_000 - fee(pool, amount))) / 1_000_000;
        out = (pool.y * kept) / (pool.x + kept);
        pool.x += amount;
        pool.y -= out;
        pool.volume += amount;
    }

    function buy(Pool memory pool, uint256 amount) internal view returns (uint256 out) {
        uint256 kept = (amount * (1_000_000 - fee(pool, amount))) / 1_000_000;
        out = (pool.x * kept) / (pool.y + kept);
        pool.y += amount;
        pool.x -= out;
        pool.volume += amount;
    }

    function next(Pool memory pool, uint256 range) internal pure returns (uint256) {
        pool.seed = uint256(keccak256(abi.encode(pool.seed)));
        return pool.seed % range;
    }

    /// One step: the price moves, the informed trader comes if it pays, then somebody trades in any case.
    function step(Pool memory pool) internal view {
        uint256 move = next(pool, 20_001);
        pool.price = (pool.price * (990_000 + move)) / 1_000_000;
        uint256 inside = (pool.y * ONE) / pool.x;
        uint256 lot = pool.x / 400;
        uint256 asked = fee(pool, lot);
        if (inside * (1_000_000 - asked) > pool.price * 1_000_000) sell(pool, lot);
        else if (pool.price * (1_000_000 - asked) > inside * 1_000_000) buy(pool, (lot * inside) / ONE);
        uint256 size = pool.x / (1_000 + next(pool, 4_000));
        uint256 patience = 2_000 + next(pool, 30_000);
        if (fee(pool, size) <= patience) {
            if (next(pool, 2) == 0) sell(pool, size);
            else buy(pool, (size * inside) / ONE);
        }
    }

    function run(uint256 steps) internal view returns (Pool memory pool) {
        pool = start();
        for (uint256 i = 0; i < steps; ++i) step(pool);
    }

    function bounded(uint256 x, uint256 y, uint256 amount, uint256 volume) internal view {
        require(curve.fee(x, y, amount, volume) <= MOST, "above a tenth");
    }

    function test_balanced() external view {
        bounded(1e15, 1e15, 1e12, 0);
    }

    function test_lopsided() external view {
        bounded(1e18, 1e12, 1e12, 1e18);
    }

    function test_tiny_trade() external view {
        bounded(1e15, 1e15, 1, 0);
    }

    function test_nothing() external view {
        bounded(1e15, 1e15, 0, 0);
    }

    function test_huge_trade() external view {
        bounded(1e15, 1e15, 1e15, 1e20);
    }

    function test_is_not_free_for_large_trades() external view {
        require(curve.fee(1e15, 1e15, 1e14, 0) > 0, "free");
    }

    function test_same_question_same_answer() external view {
        require(curve.fee(2e15, 1e15, 1e12, 5) == curve.fee(2e15, 1e15, 1e12, 5), "moody");
    }

    function test_trades_happen() external view {
        require(run(100).volume > 0, "no volume");
    }

    /// What the pool is worth at the market's price against having held, in millionths.
    function metric_edge() external view returns (int256) {
        Pool memory pool = run(400);
        uint256 held = (1_000_000 * ONE * pool.price) / ONE + 1_000_000 * ONE;
        uint256 now_ = (pool.x * pool.price) / ONE + pool.y;
        return (int256(now_) - int256(held)) / int256(held / 1_000_000);
    }

    function metric_volume() external view returns (uint256) {
        return run(400).volume / ONE;
    }

    function metric_fee_gas() external view returns (uint256) {
        uint256 before = gasleft();
        curve.fee(1e15, 2e15, 1e12, 1e15);
        return before - gasleft();
    }
}
