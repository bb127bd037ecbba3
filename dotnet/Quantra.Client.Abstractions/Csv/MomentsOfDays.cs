using System.Globalization;

namespace Quantra.Client;

/// <summary>
/// The exchange's days of dates that are moments in UTC. Elsewhere such a moment may be of the day before or after: midnights are
/// taken as days, and other moments as the only days that are all of a working week, as in Python's reader.
/// </summary>
internal sealed class MomentsOfDays
{
    /// <summary>Before this hour a moment may still be the day before somewhere; a later one may already be the day after.</summary>
    private const int ForenoonHours = 10;

    private bool _isAllUtc = true;
    private bool _isAllMidnight = true;
    private bool _isAllEarly = true;
    private bool _isOnWeekend;
    private bool _isDayBeforeOnWeekend;
    private bool _isDayAfterOnWeekend;
    private string? _first;
    private DateOnly _firstDay;

    /// <summary>The day that is written in a row.</summary>
    /// <exception cref="QuantraException">It is none, or its time of day in UTC is none.</exception>
    public DateOnly Day(CsvRow row, CsvColumn column)
    {
        var day = row.Day(column);
        _isAllUtc = _isAllUtc && IsUtc(row.Bytes(column).Trim((byte)' '));
        if (_isAllUtc)
            Add(row, column, day);
        return day;
    }

    /// <summary>How many days the exchange's are after those that are written: 0, 1 or -1.</summary>
    /// <param name="table">For errors.</param>
    /// <exception cref="QuantraException">The days of the week do not tell.</exception>
    public int DaysAhead(CsvTable table)
    {
        if (!_isAllUtc || _isAllMidnight)
            return 0;
        var beside = _isAllEarly ? -1 : 1;
        var isBesideOnWeekend = _isAllEarly ? _isDayBeforeOnWeekend : _isDayAfterOnWeekend;
        if (_isOnWeekend != isBesideOnWeekend)
            return _isOnWeekend ? beside : 0;
        throw table.Refusal(string.Create(
            CultureInfo.InvariantCulture,
            $"the moment {_first} in UTC may be of the exchange's session {_firstDay:yyyy-MM-dd} or {_firstDay.AddDays(beside):yyyy-MM-dd}; "
            + $"write the exchange's own days"));
    }

    private void Add(CsvRow row, CsvColumn column, DateOnly day)
    {
        var text = row.Text(column);
        if (!TimeOnly.TryParseExact(text.AsSpan(11, 5), "HH:mm", CultureInfo.InvariantCulture, DateTimeStyles.None, out var time))
            throw row.Refusal(column, $"'{text}' is not a moment; write 2013-12-31T16:00:00Z, or the day alone");
        if (_first is null)
            (_first, _firstDay) = (text, day);
        _isAllMidnight &= time == TimeOnly.MinValue;
        _isAllEarly &= time.Hour < ForenoonHours;
        _isOnWeekend |= day.DayOfWeek is DayOfWeek.Saturday or DayOfWeek.Sunday;
        _isDayBeforeOnWeekend |= day.DayOfWeek is DayOfWeek.Sunday or DayOfWeek.Monday;
        _isDayAfterOnWeekend |= day.DayOfWeek is DayOfWeek.Friday or DayOfWeek.Saturday;
    }

    /// <summary>Whether a time of day and the sign of UTC follow the date.</summary>
    private static bool IsUtc(ReadOnlySpan<byte> cell) =>
        cell.Length > 16 && cell[13] == ':'
        && (cell.EndsWith("Z"u8) || cell.EndsWith("UTC"u8) || cell.EndsWith("+00:00"u8) || cell.EndsWith("+0000"u8));
}
