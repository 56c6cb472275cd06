-- A file of judgements with version 3 of its tables: what sqlite3's iterdump gives of one that haybale wrote at 5e22c44d^.
PRAGMA application_id = 1751218530;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE attachments (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        documents TEXT NOT NULL,
        last INTEGER NOT NULL,
        time TEXT NOT NULL
    );
CREATE TABLE engines (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        identity TEXT NOT NULL,
        folder TEXT,
        time TEXT NOT NULL
    );
INSERT INTO "engines" VALUES(1,'IDENTITY','/data/engine','2026-11-27T17:02:57.497+00:00');
CREATE TABLE judgements (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic INTEGER NOT NULL REFERENCES topics (id),
        doc_id TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('judged', 'known', 'skipped', 'undone', 'drawn', 'reached')),
        grade INTEGER CHECK (grade >= 0),
        judge TEXT NOT NULL,
        time TEXT NOT NULL,
        seconds REAL CHECK (seconds >= 0),
        note TEXT,
        passage_id TEXT,
        passage TEXT,
        rank INTEGER CHECK (rank >= 1),
        model TEXT,
        document TEXT,
        undoes INTEGER REFERENCES judgements (id),
        CHECK ((kind IN ('judged', 'known')) = (grade IS NOT NULL)),
        CHECK ((kind = 'undone') = (undoes IS NOT NULL))
    );
INSERT INTO "judgements" VALUES(1,1,'dog/1','judged',1,'Ada','2026-11-27T17:02:57.495+00:00',3.5,'by the keeper','dog/1:0','The keeper of a dog',1,NULL,NULL,NULL);
INSERT INTO "judgements" VALUES(2,1,'tax/2','judged',0,'Ben','2026-11-27T17:02:57.495+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "judgements" VALUES(3,1,'dog/5','judged',1,'Ada','2026-11-27T17:02:57.496+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "judgements" VALUES(4,1,'dog/5','undone',NULL,'Ada','2026-11-27T17:02:57.496+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,3);
INSERT INTO "judgements" VALUES(5,1,'road/3','skipped',NULL,'Ben','2026-11-27T17:02:57.496+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "judgements" VALUES(6,2,'lease/0','known',2,'','2026-11-27T17:02:57.497+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE moves (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        judgement INTEGER NOT NULL REFERENCES judgements (id),
        doc_id TEXT NOT NULL,
        time TEXT NOT NULL
    );
CREATE TABLE store (id TEXT NOT NULL, writes INTEGER NOT NULL);
INSERT INTO "store" VALUES('a9170dd663de0751da1024c22ac506e2',8);
CREATE TABLE topics (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        settings TEXT NOT NULL,
        time TEXT NOT NULL
    );
INSERT INTO "topics" VALUES(1,'bites','dogs that bite','{"random_state": 0}','2026-11-27T17:02:57.494+00:00');
INSERT INTO "topics" VALUES(2,'rent','','{}','2026-11-27T17:02:57.495+00:00');
CREATE INDEX judgements_of_topic ON judgements (topic, id);
CREATE UNIQUE INDEX undone_once ON judgements (undoes) WHERE undoes IS NOT NULL;
CREATE TRIGGER no_update BEFORE UPDATE ON judgements BEGIN SELECT RAISE(ABORT, 'judgements never change'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON judgements BEGIN SELECT RAISE(ABORT, 'judgements never change'); END;
CREATE TRIGGER engines_stay BEFORE UPDATE ON engines BEGIN SELECT RAISE(ABORT, 'engines never change'); END;
CREATE TRIGGER engines_remain BEFORE DELETE ON engines BEGIN SELECT RAISE(ABORT, 'engines never change'); END;
CREATE INDEX moves_of_judgement ON moves (judgement, id);
CREATE TRIGGER moves_stay BEFORE UPDATE ON moves
    BEGIN SELECT RAISE(ABORT, 'moves never change'); END;
CREATE TRIGGER moves_remain BEFORE DELETE ON moves
    BEGIN SELECT RAISE(ABORT, 'moves never change'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('judgements',6);
INSERT INTO "sqlite_sequence" VALUES('engines',1);
COMMIT;
