"""The world as people have it: fixtures that the tests of every program share.

A module is named by what it holds:

- ``pods``: pods as they are created and as the API server shows them, in each shape whose resources count differently;
- ``kubelet_configurations``: settings of the kubelet that people use;
- ``broken_objects``: objects that an API server accepts and that no program may trip over;
- ``garbage``: values that are of the wrong type, out of range or no text of any format, in any place of a document;
- ``faulty_api_server``: how requests fail, in front of the API server in memory or of a real one;
- ``device_tools``: what the vendors' tools for accelerators print, as others have published it and broken;
- ``hostile_clients``: clients of a server that take up its connections and send nothing, too little, or nonsense.

To add one: append it to the table at the end of its module, with a name and a sentence that says what is special. The
tests of all programs are parametrised by these tables, so that it is tried on each of them.
"""
