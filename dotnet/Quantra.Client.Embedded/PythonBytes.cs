using System.Runtime.InteropServices;
using Python.Runtime;

namespace Quantra.Client.Embedded;

/// <summary>Copies bytes out of Python. The GIL must be held.</summary>
internal static class PythonBytes
{
    public static byte[] Copy(PyObject bytes)
    {
        using var buffer = bytes.GetBuffer();
        var copy = new byte[buffer.Length];
        if (copy.Length > 0)
            Marshal.Copy(buffer.Buffer, copy, 0, copy.Length);
        return copy;
    }

    public static byte[][] CopyEach(PyObject list)
    {
        var copies = new byte[list.Length()][];
        for (var index = 0; index < copies.Length; index++)
        {
            using var bytes = list[index];
            copies[index] = Copy(bytes);
        }

        return copies;
    }
}
