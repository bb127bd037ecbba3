namespace Quantra.Client;

/// <summary>Parses days of CSV cells.</summary>
internal static class CsvDate
{
    /// <summary>Parses 2013-12-31 or 20131231. After the former, a time of day is ignored.</summary>
    public static bool TryRead(ReadOnlySpan<byte> cell, out DateOnly day)
    {
        day = default;
        if (cell.Length > 10 && cell[10] is (byte)'T' or (byte)' ')
            cell = cell[..10];
        return cell.Length switch
        {
            8 => TryMake(cell[..4], cell[4..6], cell[6..], out day),
            10 when cell[4] == '-' && cell[7] == '-' => TryMake(cell[..4], cell[5..7], cell[8..], out day),
            _ => false,
        };
    }

    private static bool TryMake(ReadOnlySpan<byte> years, ReadOnlySpan<byte> months, ReadOnlySpan<byte> days, out DateOnly day)
    {
        var (year, month, date) = (ParseDigits(years), ParseDigits(months), ParseDigits(days));
        var exists = year >= 1 && month is >= 1 and <= 12 && date >= 1 && date <= DateTime.DaysInMonth(year, month);
        day = exists ? new DateOnly(year, month, date) : default;
        return exists;
    }

    /// <summary>Parses decimal digits; negative if there is anything else.</summary>
    private static int ParseDigits(ReadOnlySpan<byte> text)
    {
        var number = 0;
        foreach (var one in text)
        {
            if (one is < (byte)'0' or > (byte)'9')
                return -1;
            number = (10 * number) + (one - '0');
        }

        return number;
    }
}
