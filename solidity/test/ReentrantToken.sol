// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title A hostile prize token for tests: each time it moves, it calls back into whoever moved it.
/// @dev It can also act as an agent or a poster of its own, so that the call back comes from a payee.
contract ReentrantToken {
    mapping(address account => uint256) public balanceOf;
    bytes public callback;
    uint256 public callbacksMade;
    uint256 public callbacksAccepted;

    function mint(address to, uint256 amount) external {
        balanceOf[to] += amount;
    }

    /// @notice What to call on the sender of a transfer.
    function setCallback(bytes calldata data) external {
        callback = data;
    }

    /// @notice Make a call as this contract.
    function act(address target, bytes calldata data) external {
        (bool ok, bytes memory answer) = target.call(data);
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(answer, 32), mload(answer))
            }
        }
    }

    /// @notice It takes any agent, so that it can register as one.
    function onERC721Received(address, address, uint256, bytes calldata) external pure returns (bytes4) {
        return this.onERC721Received.selector;
    }

    function transfer(address to, uint256 amount) external returns (bool) {
        if (callback.length != 0 && callbacksMade < 3) {
            callbacksMade += 1;
            (bool ok,) = msg.sender.call(callback);
            if (ok) callbacksAccepted += 1;
        }
        _move(msg.sender, to, amount);
        return true;
    }

    function transferFrom(address from, address to, uint256 amount) external returns (bool) {
        _move(from, to, amount);
        return true;
    }

    function _move(address from, address to, uint256 amount) private {
        balanceOf[from] -= amount;
        balanceOf[to] += amount;
    }
}
