-- name: answer_claim
-- Note that a request is being answered, unless it was before. Uses first_answer_pkey.
-- A second one with the same id waits here until the first is committed or undone.
INSERT INTO rowlock.first_answer AS held (id, at, request, answer)
VALUES (:id, (SELECT {now}), :request, '')
ON CONFLICT (id) DO UPDATE
SET at = excluded.at, request = excluded.request, answer = excluded.answer
WHERE held.at <= excluded.at - :kept::bigint
RETURNING id

-- name: answer_find
-- What was answered to the first request. Uses first_answer_pkey.
SELECT held.request, held.answer
FROM rowlock.first_answer AS held
WHERE held.id = :id

-- name: answer_write
-- Store the answer, in the transaction that enqueues its jobs. Uses first_answer_pkey.
UPDATE rowlock.first_answer
SET answer = :answer
WHERE id = :id

-- name: drop_answers
-- Remove answers whose retention is over. Uses first_answer_expiry.
DELETE FROM rowlock.first_answer
WHERE id IN (
    SELECT id
    FROM rowlock.first_answer
    WHERE at <= (SELECT {now}) - :answers_kept::bigint
    ORDER BY at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING id
