//! Frames: how bytes are cut into messages on a channel. It knows nothing of what messages mean (see
//! `protocol.rs`) and nothing of sockets (see `channel.rs`).
//!
//! A frame is a 5-byte head and a payload; all integers are little-endian:
//!
//! ```text
//! +-----------------+---------+----------------------------------------------+
//! | payload len u32 | kind u8 | payload                                      |
//! +-----------------+---------+----------------------------------------------+
//! kind 0 message:  json len u32, json, then a blob of raw bytes (often empty)
//! kind 1 data:     stream u32, bytes                (the stdio of a client process)
//! kind 2 credit:   stream u32, bytes consumed u32   (lets the peer send that many more)
//! kind 3 end:      stream u32                       (no more data will follow)
//! ```
//!
//! Data never passes through JSON, and a credit window per stream keeps a reader that does not read
//! from holding up the control messages behind it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// No frame is longer; a longer one means that the two ends disagree about where frames begin.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;
const HEAD_BYTES: usize = 5;

const MESSAGE: u8 = 0;
const DATA: u8 = 1;
const CREDIT: u8 = 2;
const END: u8 = 3;

/// One unit of what travels on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    Message { json: Bytes, blob: Bytes },
    Data { stream: u32, bytes: Bytes },
    Credit { stream: u32, bytes: u32 },
    End { stream: u32 },
}

impl Frame {
    /// Appends the frame to `out`.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let head = |out: &mut BytesMut, kind: u8, len: usize| {
            out.reserve(HEAD_BYTES + len);
            out.put_u32_le(len as u32);
            out.put_u8(kind);
        };
        match self {
            Self::Message { json, blob } => {
                head(out, MESSAGE, 4 + json.len() + blob.len());
                out.put_u32_le(json.len() as u32);
                out.put_slice(json);
                out.put_slice(blob);
            }
            Self::Data { stream, bytes } => {
                head(out, DATA, 4 + bytes.len());
                out.put_u32_le(*stream);
                out.put_slice(bytes);
            }
            Self::Credit { stream, bytes } => {
                head(out, CREDIT, 8);
                out.put_u32_le(*stream);
                out.put_u32_le(*bytes);
            }
            Self::End { stream } => {
                head(out, END, 4);
                out.put_u32_le(*stream);
            }
        }
    }

    /// Takes the first whole frame off `input`; `None` when more bytes are needed.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes. The channel cannot be used afterwards.
    pub(crate) fn decode(input: &mut BytesMut) -> Result<Option<Self>, String> {
        if input.len() < HEAD_BYTES {
            return Ok(None);
        }
        let len = u32::from_le_bytes([input[0], input[1], input[2], input[3]]) as usize;
        if len > PAYLOAD_BYTES_MAX {
            return Err(format!("a frame of {len} bytes"));
        }
        if input.len() < HEAD_BYTES + len {
            input.reserve(HEAD_BYTES + len - input.len());
            return Ok(None);
        }
        let kind = input[4];
        input.advance(HEAD_BYTES);
        let mut payload = input.split_to(len).freeze();
        let least = if kind == CREDIT { 8 } else { 4 };
        if payload.len() < least {
            return Err(format!("a frame of kind {kind} with {len} bytes"));
        }
        let first = payload.get_u32_le();
        match kind {
            MESSAGE => {
                if first as usize > payload.len() {
                    return Err(format!(
                        "a message of {len} bytes with {first} bytes of json"
                    ));
                }
                let json = payload.split_to(first as usize);
                Ok(Some(Self::Message {
                    json,
                    blob: payload,
                }))
            }
            DATA => Ok(Some(Self::Data {
                stream: first,
                bytes: payload,
            })),
            CREDIT => Ok(Some(Self::Credit {
                stream: first,
                bytes: payload.get_u32_le(),
            })),
            END => Ok(Some(Self::End { stream: first })),
            other => Err(format!("a frame of unknown kind {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        prop_oneof![
            (bytes(), bytes()).prop_map(|(json, blob)| Frame::Message { json, blob }),
            (any::<u32>(), bytes()).prop_map(|(stream, bytes)| Frame::Data { stream, bytes }),
            (any::<u32>(), any::<u32>())
                .prop_map(|(stream, bytes)| Frame::Credit { stream, bytes }),
            any::<u32>().prop_map(|stream| Frame::End { stream }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation(
            frames in proptest::collection::vec(any_frame(), 0..20),
            piece in 1_usize..64,
        ) {
            let mut wire = BytesMut::new();
            for frame in &frames {
                frame.encode(&mut wire);
            }
            let (mut input, mut seen) = (BytesMut::new(), Vec::new());
            for part in wire.chunks(piece) {
                input.extend_from_slice(part);
                while let Some(frame) = Frame::decode(&mut input).unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn garbage_never_panics(garbage in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut input = BytesMut::from(&garbage[..]);
            while let Ok(Some(_)) = Frame::decode(&mut input) {}
        }
    }

    #[test]
    fn oversized_frames_are_refused() {
        let mut input = BytesMut::from(&[0xff, 0xff, 0xff, 0x7f, 0][..]);
        assert!(Frame::decode(&mut input).is_err());
    }
}
