-- What this site is, as its guard last saw it. One row; none where there is only one site.
CREATE TABLE site (
    site           text        PRIMARY KEY,
    role           text        NOT NULL,
    epoch          int         NOT NULL,
    mirror_events  bigint,                  -- not here yet; null at the active site, or where the other is silent
    mirror_seconds float8,                  -- how long the mirror takes; null at the active site
    observed_at    timestamptz NOT NULL DEFAULT now()
);

-- Where each mirrored topic ended here when this site was promoted: nothing of an older epoch follows.
CREATE TABLE promotion (
    epoch     int    NOT NULL,
    topic     text   NOT NULL,
    partition int    NOT NULL,
    ends_at   bigint NOT NULL,
    PRIMARY KEY (epoch, topic, partition)
);
