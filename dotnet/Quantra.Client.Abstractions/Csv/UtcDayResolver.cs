using System.Globalization;

namespace Quantra.Client;

/// <summary>
/// Finds the exchange's days for dates written as times in UTC, which may belong to the day before or after. Midnights count as their own
/// day. For other times, the offset is the one that puts all days into a working week, as in the Python reader.
/// </summary>
internal sealed class UtcDayResolver
{
    /// <summary>Before this hour a UTC time may belong to the previous day elsewhere; after it, to the next day.</summary>
    private const int ForenoonHours = 10;

    private bool _isAllUtc = true;
    private bool _isAllMidnight = true;
    private bool _isAllEarly = true;
    private bool _isOnWeekend;
    private bool _isDayBeforeOnWeekend;
    private bool _isDayAfterOnWeekend;
    private string? _first;
    private DateOnly _firstDay;

    /// <summary>Returns the day in a cell.</summary>
    /// <exception cref="QuantraException">The cell has no valid day or time.</exception>
    public DateOnly Day(CsvRow row, CsvColumn column)
    {
        var day = row.Day(column);
        _isAllUtc = _isAllUtc && IsUtc(row.Bytes(column).Trim((byte)' '));
        if (_isAllUtc)
            Add(row, column, day);
        return day;
    }

    /// <summary>Returns the offset in days from the written to the exchange's days: 0, 1 or -1.</summary>
    /// <exception cref="QuantraException">The days of the week are ambiguous.</exception>
    public int CountDaysAhead(CsvTable table)
    {
        if (!_isAllUtc || _isAllMidnight)
            return 0;
        var offset = _isAllEarly ? -1 : 1;
        var isBesideOnWeekend = _isAllEarly ? _isDayBeforeOnWeekend : _isDayAfterOnWeekend;
        if (_isOnWeekend != isBesideOnWeekend)
            return _isOnWeekend ? offset : 0;
        throw table.Refusal(string.Create(
            CultureInfo.InvariantCulture,
            $"the UTC time {_first} may belong to the session {_firstDay:yyyy-MM-dd} or {_firstDay.AddDays(offset):yyyy-MM-dd}; "
            + $"write the exchange's days instead"));
    }

    private void Add(CsvRow row, CsvColumn column, DateOnly day)
    {
        var text = row.Text(column);
        if (!TimeOnly.TryParseExact(text.AsSpan(11, 5), "HH:mm", CultureInfo.InvariantCulture, DateTimeStyles.None, out var time))
            throw row.Refusal(column, $"'{text}' is not a time; write 2013-12-31T16:00:00Z, or only the day");
        if (_first is null)
            (_first, _firstDay) = (text, day);
        _isAllMidnight &= time == TimeOnly.MinValue;
        _isAllEarly &= time.Hour < ForenoonHours;
        _isOnWeekend |= day.DayOfWeek is DayOfWeek.Saturday or DayOfWeek.Sunday;
        _isDayBeforeOnWeekend |= day.DayOfWeek is DayOfWeek.Sunday or DayOfWeek.Monday;
        _isDayAfterOnWeekend |= day.DayOfWeek is DayOfWeek.Friday or DayOfWeek.Saturday;
    }

    /// <summary>Whether a time of day and a UTC mark follow the date.</summary>
    private static bool IsUtc(ReadOnlySpan<byte> cell) =>
        cell.Length > 16 && cell[13] == ':'
        && (cell.EndsWith("Z"u8) || cell.EndsWith("UTC"u8) || cell.EndsWith("+00:00"u8) || cell.EndsWith("+0000"u8));
}
