-- Whether a token was ever made, and whether one still holds.
SELECT
    EXISTS (SELECT 1 FROM rowlock_token),
    EXISTS (
        SELECT 1
        FROM rowlock_token AS token
        WHERE token.revoked_at IS NULL
            AND (token.expires_at IS NULL OR token.expires_at > {now})
    )
