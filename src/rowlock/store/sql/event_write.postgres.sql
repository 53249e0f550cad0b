-- Tell what happened.
INSERT INTO rowlock.event (at, events)
VALUES ({now}, :events)
