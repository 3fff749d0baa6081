"""What posters and agents do with challenges: post, submit, claim, list, show, and read the results.

Plain async functions, the same for every door. A writing action looks first (status, deadlines, balances, ownership),
then makes a `Plan` of unsigned transactions; only `carry_out` signs and sends, and only with a local wallet.
"""
