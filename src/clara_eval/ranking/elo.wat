;; The two loops of Elo that cannot be one numpy step: dealing results into rounds, and playing rounds one after the
;; other. Every operation and its order are those of elo.py, so that not one bit differs; `compiled.py` lays out memory.
(module
  (memory (export "memory") 1)

  ;; Deal results into rounds: each joins the first round in which neither item plays yet. `taken` has `words` 64-bit
  ;; words for each item, zero at first. A level is written for each result; out goes the number of rounds.
  (func (export "deal") (param $first i32) (param $second i32) (param $count i32) (param $level i32)
    (param $taken i32) (param $words i32) (result i32)
    (local $game i32) (local $a i32) (local $b i32) (local $word i32) (local $busy i64) (local $free i64)
    (local $found i32) (local $rounds i32)
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $game) (local.get $count)))
        (local.set $a (call $bits (local.get $first) (local.get $game) (local.get $taken) (local.get $words)))
        (local.set $b (call $bits (local.get $second) (local.get $game) (local.get $taken) (local.get $words)))
        (local.set $word (i32.const 0))
        (loop $full
          (local.set $busy (i64.or (i64.load (local.get $a)) (i64.load (local.get $b))))
          (if (i64.eq (local.get $busy) (i64.const -1))
            (then
              (local.set $word (i32.add (local.get $word) (i32.const 64)))
              (local.set $a (i32.add (local.get $a) (i32.const 8)))
              (local.set $b (i32.add (local.get $b) (i32.const 8)))
              (br $full))))
        (local.set $free (i64.and (i64.xor (local.get $busy) (i64.const -1))
          (i64.add (local.get $busy) (i64.const 1))))
        (i64.store (local.get $a) (i64.or (i64.load (local.get $a)) (local.get $free)))
        (i64.store (local.get $b) (i64.or (i64.load (local.get $b)) (local.get $free)))
        (local.set $found (i32.add (local.get $word) (i32.wrap_i64 (i64.ctz (local.get $free)))))
        (i32.store (i32.add (local.get $level) (i32.shl (local.get $game) (i32.const 2))) (local.get $found))
        (if (i32.ge_u (local.get $found) (local.get $rounds))
          (then (local.set $rounds (i32.add (local.get $found) (i32.const 1)))))
        (local.set $game (i32.add (local.get $game) (i32.const 1)))
        (br $each)))
    (local.get $rounds))

  (func $bits (param $items i32) (param $game i32) (param $taken i32) (param $words i32) (result i32)
    (i32.add (local.get $taken) (i32.mul (i32.shl (local.get $words) (i32.const 3))
      (i32.load (i32.add (local.get $items) (i32.shl (local.get $game) (i32.const 2)))))))

  ;; Play the rounds in the given order. `games` has 16 bytes for each: where the two ratings lie, and the points of the
  ;; first; round r are the games from starts[r] to starts[r + 1].
  (func (export "play") (param $order i32) (param $rounds i32) (param $starts i32) (param $games i32)
    (param $powers i32)
    (local $end i32) (local $game i32) (local $last i32) (local $round i32) (local $a i32) (local $b i32)
    (local $rating_a f64) (local $rating_b f64) (local $x f64) (local $steps f64) (local $series f64)
    (local $change f64)
    (local.set $end (i32.add (local.get $order) (i32.shl (local.get $rounds) (i32.const 2))))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $order) (local.get $end)))
        (local.set $round (i32.add (local.get $starts) (i32.shl (i32.load (local.get $order)) (i32.const 2))))
        (local.set $game (i32.add (local.get $games) (i32.shl (i32.load (local.get $round)) (i32.const 4))))
        (local.set $last (i32.add (local.get $games) (i32.shl (i32.load offset=4 (local.get $round)) (i32.const 4))))
        (block $played
          (loop $next
            (br_if $played (i32.ge_u (local.get $game) (local.get $last)))
            (local.set $a (i32.load (local.get $game)))
            (local.set $b (i32.load offset=4 (local.get $game)))
            (local.set $rating_a (f64.load (local.get $a)))
            (local.set $rating_b (f64.load (local.get $b)))
            (local.set $x (f64.mul (f64.sub (local.get $rating_a) (local.get $rating_b))
              (f64.const -0.531508495181978)))
            (local.set $x (select (f64.const -4096) (local.get $x) (f64.lt (local.get $x) (f64.const -4096))))
            (local.set $x (select (f64.const 4096) (local.get $x) (f64.gt (local.get $x) (f64.const 4096))))
            (local.set $steps (f64.nearest (local.get $x)))
            (local.set $x (f64.mul (f64.sub (local.get $x) (local.get $steps)) (f64.const 0.010830424696249145)))
            (local.set $series (f64.mul (local.get $x) (f64.const 0.041666666666666664)))
            (local.set $series (f64.mul (f64.add (local.get $series) (f64.const 0.16666666666666666)) (local.get $x)))
            (local.set $series (f64.mul (f64.add (local.get $series) (f64.const 0.5)) (local.get $x)))
            (local.set $series (f64.mul (f64.add (local.get $series) (f64.const 1)) (local.get $x)))
            (local.set $series (f64.mul (f64.add (local.get $series) (f64.const 1))
              (f64.load (i32.add (local.get $powers)
                (i32.shl (i32.add (i32.trunc_sat_f64_s (local.get $steps)) (i32.const 4096)) (i32.const 3))))))
            (local.set $change (f64.mul (f64.const 32) (f64.sub (f64.load offset=8 (local.get $game))
              (f64.div (f64.const 1) (f64.add (local.get $series) (f64.const 1))))))
            (f64.store (local.get $a) (f64.add (local.get $rating_a) (local.get $change)))
            (f64.store (local.get $b) (f64.sub (local.get $rating_b) (local.get $change)))
            (local.set $game (i32.add (local.get $game) (i32.const 16)))
            (br $next)))
        (local.set $order (i32.add (local.get $order) (i32.const 4)))
        (br $each)))))
