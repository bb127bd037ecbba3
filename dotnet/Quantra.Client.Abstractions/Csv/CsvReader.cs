using System.Text;

namespace Quantra.Client;

/// <summary>Reads a CSV file line by line (RFC 4180, without line breaks inside cells). Cells are UTF-8.</summary>
/// <remarks>
/// Accepts the line ends of Windows, Unix and old Macs. Converts UTF-16 with a byte order mark. The file may be open in another program, for
/// example Excel.
/// </remarks>
internal sealed class CsvReader : IDisposable
{
    private readonly Stream _file;
    private Stream _text;
    private byte[] _buffer = new byte[1 << 16];
    private int _start;
    private int _end;
    private byte[] _line = [];
    private byte[] _unquoted = [];
    private (int Start, int Length)[] _cells = new (int, int)[16];

    /// <summary>Opens a file.</summary>
    /// <exception cref="IOException">The file cannot be read.</exception>
    /// <exception cref="UnauthorizedAccessException">Access is denied, or the path is a folder.</exception>
    public CsvReader(string path)
    {
        var file = new FileStream(path, new FileStreamOptions
        {
            Share = FileShare.ReadWrite | FileShare.Delete,
            Options = FileOptions.SequentialScan,
            BufferSize = 0,
        });
        _text = _file = file.CanSeek ? file : ReadWhole(file);
        Rewind();
    }

    /// <summary>Number of cells in the current line.</summary>
    public int Count { get; private set; }

    /// <summary>Whether the current line is empty.</summary>
    public bool IsEmpty { get; private set; }

    /// <summary>Number of the current line, from 0.</summary>
    public int Number { get; private set; }

    /// <summary>Returns a cell without its quotes, valid until the next line is read.</summary>
    public ReadOnlySpan<byte> Cell(int index) => _line.AsSpan(_cells[index].Start, _cells[index].Length);

    /// <summary>Starts again with the first line.</summary>
    /// <exception cref="IOException">The file cannot be read.</exception>
    public void Rewind()
    {
        Span<byte> mark = stackalloc byte[3];
        _file.Position = 0;
        var length = _file.ReadAtLeast(mark, mark.Length, throwOnEndOfStream: false);
        var (encoding, begin) = mark[..length] switch
        {
            [0xEF, 0xBB, 0xBF] => (Encoding.UTF8, 3),
            [0xFF, 0xFE, ..] => (Encoding.Unicode, 2),
            [0xFE, 0xFF, ..] => (Encoding.BigEndianUnicode, 2),
            _ => (Encoding.UTF8, 0),
        };
        _file.Position = begin;
        _text = encoding == Encoding.UTF8 ? _file : Encoding.CreateTranscodingStream(_file, encoding, Encoding.UTF8, leaveOpen: true);
        (_start, _end, Number) = (0, 0, -1);
    }

    /// <summary>Reads the next line.</summary>
    /// <returns>False at the end of the file.</returns>
    /// <exception cref="IOException">The file cannot be read.</exception>
    public bool Read()
    {
        if (!TryFindLine(out var length))
            return false;
        var line = _buffer.AsSpan(_start, length);
        Number++;
        IsEmpty = length == 0;
        Count = 0;
        if (line.Contains((byte)'"'))
            SplitQuoted(line);
        else
            Split(line);
        _start += length;
        return true;
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        _text.Dispose();
        _file.Dispose();
    }

    /// <summary>Copies a stream that can be read only once, for example a pipe.</summary>
    private static MemoryStream ReadWhole(FileStream pipe)
    {
        using (pipe)
        {
            var whole = new MemoryStream();
            pipe.CopyTo(whole);
            return whole;
        }
    }

    /// <summary>Finds the end of the line at the start of the buffer, and reads more as needed.</summary>
    private bool TryFindLine(out int length)
    {
        SkipLineEnd();
        for (var searched = 0; ;)
        {
            length = _buffer.AsSpan((_start + searched).._end).IndexOfAny((byte)'\n', (byte)'\r') + searched;
            if (length >= searched)
                return true;
            searched = length = _end - _start;
            if (!Fill())
                return length > 0;
        }
    }

    /// <summary>Skips the end of the previous line, including the line feed after a carriage return.</summary>
    private void SkipLineEnd()
    {
        if (Number < 0 || (_start == _end && !Fill()))
            return;
        var isReturn = _buffer[_start++] == '\r';
        if (isReturn && (_start < _end || Fill()) && _buffer[_start] == '\n')
            _start++;
    }

    /// <summary>Appends to the buffer. Returns false at the end of the file.</summary>
    private bool Fill()
    {
        _buffer.AsSpan(_start.._end).CopyTo(_buffer);
        (_start, _end) = (0, _end - _start);
        if (_end == _buffer.Length)
            Array.Resize(ref _buffer, 2 * _buffer.Length);
        var read = _text.Read(_buffer.AsSpan(_end));
        _end += read;
        return read > 0;
    }

    private void Split(ReadOnlySpan<byte> line)
    {
        _line = _buffer;
        for (var start = 0; ;)
        {
            var length = line[start..].IndexOf((byte)',');
            if (length < 0)
            {
                Add(_start + start, line.Length - start);
                return;
            }

            Add(_start + start, length);
            start += length + 1;
        }
    }

    /// <summary>Copies the cells without their quotes. Two quotes inside a cell stand for one.</summary>
    private void SplitQuoted(ReadOnlySpan<byte> line)
    {
        if (_unquoted.Length < line.Length)
            _unquoted = new byte[2 * line.Length];
        _line = _unquoted;
        var (start, end, isQuoted) = (0, 0, false);
        for (var at = 0; at < line.Length; at++)
        {
            if (line[at] == '"' && !(isQuoted && line[(at + 1)..] is [(byte)'"', ..]))
            {
                isQuoted = !isQuoted;
            }
            else if (line[at] == ',' && !isQuoted)
            {
                Add(start, end - start);
                start = end;
            }
            else
            {
                _unquoted[end++] = line[at];
                at += line[at] == '"' ? 1 : 0;
            }
        }

        Add(start, end - start);
    }

    private void Add(int start, int length)
    {
        if (Count == _cells.Length)
            Array.Resize(ref _cells, 2 * Count);
        _cells[Count++] = (start, length);
    }
}
