-- Tell what happened.
INSERT INTO rowlock_event (at, events)
VALUES ({now}, :events)
