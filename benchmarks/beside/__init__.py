"""The same work by us and by others, taking turns: ``rollstream bench beside``.

A section is one piece of work; its sides are who does it. Sides take turns round by
round, so that what drifts on the machine drifts for all of them.
"""
