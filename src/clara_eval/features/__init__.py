"""The features room: what each submission is, as typed facts.

In come a schema and a solution; out go `Features`: one typed vector for the judge, texts for people, and flags. What
tools can measure is measured and beats what a model claims. What is not known is None, never a good value by default.
"""
