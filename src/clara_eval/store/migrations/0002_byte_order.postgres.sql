-- A server compares text by its own language by default, where no key is found below its prefix.
ALTER TABLE entries ALTER COLUMN key TYPE TEXT COLLATE "C";
ALTER TABLE public_keys ALTER COLUMN key TYPE TEXT COLLATE "C";
