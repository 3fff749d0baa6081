// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Submission} from "./Submission.sol";

/// What a submission must be able to do, in the harness's own words: it is called by these types and no others.
interface Batch {
    function send(address token, address[] calldata to, uint256[] calldata amounts) external;
}

/// A token as small as it can be: the harness pays with it and looks at who got what. Only the harness makes more of it.
contract Token {
    address immutable maker = msg.sender;
    mapping(address => uint256) public balanceOf;

    function mint(address to, uint256 amount) external {
        require(msg.sender == maker, "maker");
        balanceOf[to] += amount;
    }

    function transfer(address to, uint256 amount) external returns (bool) {
        require(balanceOf[msg.sender] >= amount, "balance");
        unchecked {
            balanceOf[msg.sender] -= amount;
            balanceOf[to] += amount;
        }
        return true;
    }
}

/// Runs one `Submission`: twelve tests of what it must do, and what a batch of twenty costs.
contract Harness {
    Token token;
    Batch batch;
    bytes32 seed;

    function setUp() external {
        token = new Token();
        batch = Batch(address(new Submission()));
        seed = keccak256(type(Submission).creationCode);
        token.mint(address(batch), 1_000_000);
    }

    function who(uint256 n) internal pure returns (address[] memory list) {
        list = new address[](n);
        for (uint256 i = 0; i < n; ++i) list[i] = address(uint160(0x1000 + i));
    }

    function amounts(uint256 n) internal pure returns (uint256[] memory list) {
        list = new uint256[](n);
        for (uint256 i = 0; i < n; ++i) list[i] = 10 + i;
    }

    function pay(uint256 n) internal {
        batch.send(address(token), who(n), amounts(n));
    }

    /// Everybody has what is due, and it came out of the balance.
    function check(uint256 n) internal view {
        address[] memory to = who(n);
        uint256 sum = 0;
        for (uint256 i = 0; i < n; ++i) {
            require(token.balanceOf(to[i]) == 10 + i, "balance");
            sum += 10 + i;
        }
        require(token.balanceOf(address(batch)) == 1_000_000 - sum, "rest");
    }

    function test_none() external {
        pay(0);
        require(token.balanceOf(address(batch)) == 1_000_000, "moved");
    }

    function test_one() external {
        pay(1);
        check(1);
    }

    function test_two() external {
        pay(2);
        check(2);
    }

    function test_twenty() external {
        pay(20);
        check(20);
    }

    function test_rest_stays() external {
        pay(3);
        require(token.balanceOf(address(batch)) == 1_000_000 - 33, "rest");
    }

    function test_twice_the_same() external {
        address[] memory to = new address[](2);
        to[0] = to[1] = address(0x77);
        batch.send(address(token), to, amounts(2));
        require(token.balanceOf(address(0x77)) == 21, "sum");
    }

    function test_zero_amount() external {
        uint256[] memory zero = new uint256[](1);
        batch.send(address(token), who(1), zero);
        require(token.balanceOf(who(1)[0]) == 0, "zero");
    }

    function test_again() external {
        pay(2);
        pay(2);
        require(token.balanceOf(who(2)[1]) == 22, "again");
    }

    function test_lengths_must_agree() external {
        try batch.send(address(token), who(2), amounts(1)) {
            revert("accepted");
        } catch {}
    }

    function test_too_much_is_refused() external {
        uint256[] memory much = new uint256[](1);
        much[0] = 2_000_000;
        try batch.send(address(token), who(1), much) {
            revert("accepted");
        } catch {}
    }

    function test_all_or_nothing() external {
        uint256[] memory list = new uint256[](2);
        list[0] = 1;
        list[1] = 2_000_000;
        try batch.send(address(token), who(2), list) {
            revert("accepted");
        } catch {}
        require(token.balanceOf(who(2)[0]) == 0, "half");
    }

    function test_other_token() external {
        Token other = new Token();
        other.mint(address(batch), 100);
        batch.send(address(other), who(1), amounts(1));
        require(other.balanceOf(who(1)[0]) == 10, "other");
    }

    /// Who is paid in the metric follows from the submission's own code: it cannot know it when it is written.
    function drawn(uint256 n) internal view returns (address[] memory to, uint256[] memory list) {
        (to, list) = (new address[](n), new uint256[](n));
        for (uint256 i = 0; i < n; ++i) {
            uint256 draw = mulmod(uint256(seed), i + 1, type(uint256).max);
            (to[i], list[i]) = (address(uint160(draw >> 96)), (draw % 1_000) + 1);
        }
    }

    /// A metric checks what it measured: a submission can tell it from a test, and would skip the work here.
    function metric_batch_gas() external returns (uint256 used) {
        (address[] memory to, uint256[] memory list) = drawn(20);
        uint256 before = gasleft();
        batch.send(address(token), to, list);
        used = before - gasleft();
        uint256 sum = 0;
        for (uint256 i = 0; i < 20; ++i) {
            require(token.balanceOf(to[i]) == list[i], "balance");
            sum += list[i];
        }
        require(token.balanceOf(address(batch)) == 1_000_000 - sum, "rest");
    }
}
